"""Questions to a model and its answers, whichever execution it is: no gRPC, no NumPy."""
