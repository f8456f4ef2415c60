"""Models as ONNX folders: written, run in Python without TensorFlow, and run in a browser."""
