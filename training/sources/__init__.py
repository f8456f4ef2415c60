"""The kinds of sources that a model attends to: texts, images, histories of events.

Each kind is a folder. It defines how raw input is read, with the same TensorFlow operations in
tf.data and in a SavedModel, and how the input is encoded into a memory to attend to. `source.py`
has the base class with the methods of a source.
"""
