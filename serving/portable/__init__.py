"""A model in a folder, for where no TensorFlow is: written, read in Python, run in a browser."""
