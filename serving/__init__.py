"""From a run directory to TensorFlow Serving and back, over gRPC."""

import training.command.interrupt  # noqa: F401
