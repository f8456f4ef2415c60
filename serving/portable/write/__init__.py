"""Writes a run as ONNX graphs beside a manifest and its tokenizers."""
