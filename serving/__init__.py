"""From a run directory to TensorFlow Serving and back, over gRPC."""
