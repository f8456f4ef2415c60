"""Exports as servers and checks run them: SavedModel and ONNX, with one set of statuses."""
