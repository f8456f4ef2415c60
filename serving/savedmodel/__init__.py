"""A SavedModel as TensorFlow's C++ API loads and runs it, with its tensors and statuses."""
