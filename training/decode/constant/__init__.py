"""Decoder steps and matrix products with constant kernels, for exports."""
