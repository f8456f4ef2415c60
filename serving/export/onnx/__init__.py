"""A run as ONNX graphs: encoder, decoder's step and whole search, written node by node."""
