"""Training on several devices and in several processes, on TensorFlow and JAX."""
