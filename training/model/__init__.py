"""The models, in Keras's Functional API, on any backend."""
