"""The parts of the local model server: TensorFlow Serving's protocol around a ModelSession."""
