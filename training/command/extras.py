"""A command's needs on TensorFlow: its packages, by their extra, and Keras's backend.

Importing this sees to it where `__main__` is a command of this project, so that a command imports
it first. A library that is imported elsewhere fails as Python does.
"""

import importlib.util
import os
import sys

from training.command.errors import install, refuse_windows

TRAINING = ("tensorflow", "tensorflow_text", "sentencepiece", "sacrebleu", "rich")
SERVING = (*TRAINING, "grpc", "grpc_health", "tensorflow_serving")
NEEDED = {"training": TRAINING, "serving": SERVING}


def _prepare_command() -> None:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec else ""
    package = name.split(".")[0].removeprefix("keras_attention_")
    if package not in NEEDED:
        return
    refuse_windows()
    for module in NEEDED[package]:
        if importlib.util.find_spec(module) is None:
            raise SystemExit(f"error: {module} is not installed: {install(package)}")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        other = "; training.train_arrays trains on it" if name.endswith("training.train") else ""
        print(f"note: this command runs on TensorFlow, not on {backend}{other}", file=sys.stderr)
    os.environ["KERAS_BACKEND"] = "tensorflow"


_prepare_command()
