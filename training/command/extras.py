"""A command's needs on TensorFlow: its packages, by their extra, and Keras's backend."""

import importlib.util
import os
import sys

from training.command.errors import UserError, install, refuse_windows

TRAINING = ("tensorflow", "tensorflow_text", "sentencepiece", "sacrebleu", "rich")
SERVING = (*TRAINING, "grpc", "grpc_health", "tensorflow_serving")
NEEDED = {"training": TRAINING, "serving": SERVING}


def need(package: str, other: str = "") -> None:
    """Have Keras run on TensorFlow; a command calls this once its arguments are right.

    `other` says which command runs on other backends. Raises UserError where a package is missing.
    """
    refuse_windows()
    for module in NEEDED[package]:
        if importlib.util.find_spec(module) is None:
            raise UserError(f"{module} is not installed: {install(package)}")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if "keras" in sys.modules:  # its backend is set already
        return
    if backend != "tensorflow":
        print(f"note: this command runs on TensorFlow, not on {backend}{other}", file=sys.stderr)
    os.environ["KERAS_BACKEND"] = "tensorflow"
