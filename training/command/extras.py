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


def missing(modules: tuple[str, ...]) -> str | None:
    """Return the first of these that is not installed."""
    return next((name for name in modules if importlib.util.find_spec(name) is None), None)


def _prepare_command() -> None:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec else ""
    package = name.split(".")[0].removeprefix("keras_attention_")
    needed = {"training": TRAINING, "serving": SERVING}.get(package, ())
    if needed:
        refuse_windows()
    if absent := missing(needed):
        raise SystemExit(f"error: {absent} is not installed: {install(package)}")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if needed and backend != "tensorflow":
        other = "; training.train_arrays trains on it" if name.endswith("training.train") else ""
        print(f"note: this command runs on TensorFlow, not on {backend}{other}", file=sys.stderr)
    if needed:
        os.environ["KERAS_BACKEND"] = "tensorflow"


_prepare_command()
