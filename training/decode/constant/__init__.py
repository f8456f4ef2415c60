"""Decoder steps and products with constant kernels, for exports."""
