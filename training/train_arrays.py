"""Train from prepared token ids: KERAS_BACKEND=jax python -m training.train_arrays RUN.

Several devices of JAX share each batch, and so do several processes that run the same command, on
one machine or many: `training.fit.distributed` says what tells them.

TensorFlow is not imported, so that this runs wherever JAX or PyTorch find a GPU, with Keras, NumPy
and h5py alone. The run directory is that of `training.train`: TensorFlow evaluates, exports and
serves it. The epoch with the lowest perplexity on dev is kept: translating takes the tokenizers,
which are TensorFlow's.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

from training.command.errors import UserError
from training.command.native import keep_programs, start_tensorflow
from training.command.options import Parser, going_on, main_guard
from training.runs.files import RunFiles, summary

BACKENDS = ("jax", "torch", "tensorflow")


def check_backend() -> None:
    """Raise a UserError where the backend that Keras takes is not installed."""
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    there = [name for name in BACKENDS if importlib.util.find_spec(name)]
    if backend not in there:
        expected = " or ".join(there) or "jax or torch, of which neither is installed"
        raise UserError(f"KERAS_BACKEND expected {expected}. Received: {backend}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.train_arrays",
        description="Train a run that training.prepare made, without TensorFlow, on the backend "
        "that KERAS_BACKEND names. The same command goes on with a run that was stopped. JAX uses "
        "all devices. Several processes can train one run on a disk that all of them see: "
        "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID name them.",
        examples=["runs/cmudict", "/shared/runs/cmudict    # KERAS_BACKEND=jax before it"],
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    options = parser.parse_args(arguments)
    check_backend()
    RunFiles(options.run).check_prepared()
    with going_on("the same command goes on"):
        if (os.environ.get("KERAS_BACKEND") or "tensorflow") == "tensorflow":
            keep_programs()
            start_tensorflow()
        from training.fit.arrays import train_arrays  # Keras and its backend take seconds
        from training.fit.distributed import joined

        with joined() as processes:
            train_arrays(options.run, processes)
            if processes.writes:
                print(json.dumps(summary(RunFiles(options.run))))


if __name__ == "__main__":
    main_guard(main)
