"""Train from prepared token ids: KERAS_BACKEND=jax python -m training.train_arrays RUN.

Several JAX devices share each batch. So do several processes that run the same command, on one
machine or many: `training.fit.distributed` describes their environment variables.

The command does not import TensorFlow. It runs wherever JAX or PyTorch finds a GPU, and needs only
Keras, NumPy and h5py. The run directory has the same form as with `training.train`, so TensorFlow
can evaluate, export and serve the run. The command keeps the epoch with the lowest perplexity on
the dev set, because translation needs the tokenizers, which need TensorFlow.
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
    """Raise a UserError if the backend that Keras will use is not installed."""
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
        from training.fit.arrays import train_arrays  # importing Keras takes seconds
        from training.fit.distributed import joined

        with joined() as processes:
            train_arrays(options.run, processes)
            if processes.writes:
                print(json.dumps(summary(RunFiles(options.run))))


if __name__ == "__main__":
    main_guard(main)
