"""Sources, which are attended to: a text, an image, a history of events.

A source is one folder here: how raw input is read, by the same TensorFlow operations in tf.data and
in a SavedModel, and how it is encoded into a memory to attend to. `source.py` has its methods.
"""
