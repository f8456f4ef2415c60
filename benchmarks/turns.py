"""Measure processes that take turns, so that other load on the machine meets all alike.

A worker prepares, says that it is ready, and then for each line that it reads runs the round of
that name and answers how long it took. Uses the standard library alone: peers' environments import
it too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# Peers, and what installs each into its environment. Pins that no longer hold are left out; of
# PyTorch the build without CUDA is enough, where the package index has it.
PEERS = {
    "opennmt-tf": [
        "pip install tensorflow-cpu==2.13.1 tensorflow-addons==0.21.0 opennmt-tf==2.32.0"
    ],
    "tensorflow-addons": ["pip install tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0"],
    "opennmt-py": [
        "pip install torch==2.13.0 numpy configargparse 'ctranslate2>=4,<5' tensorboard flask "
        "waitress 'pyonmttok>=1.37,<2' pyyaml sacrebleu rapidfuzz pyahocorasick six sentencepiece",
        "pip install --no-deps opennmt-py==3.5.1",
    ],
    "fairseq": [
        "pip install torch==2.13.0 numpy cython 'setuptools<81' wheel cffi omegaconf hydra-core "
        "bitarray scikit-learn tqdm sacrebleu",
        # The variable leaves out extensions that nothing here uses, minutes of compilation.
        "READTHEDOCS=1 pip install --no-build-isolation --no-deps fairseq-fixed==0.12.3.1",
    ],
    "joeynmt": [
        "pip install torch==2.13.0 numpy pyyaml importlib_metadata sentencepiece subword-nmt "
        "sacrebleu packaging tensorboard matplotlib",
        "pip install --no-deps joeynmt==2.3.0",
    ],
    "marian": ["pip install numpy pymarian==1.12.42"],
    "keras-jax": ["pip install numpy keras==3.15.1 jax==0.10.2"],
}
# What else a peer may be, after its name: in lower precision, compiled, or both.
_KERAS = (", mixed_bfloat16", ", XLA", ", mixed_bfloat16, XLA")
_TORCH = (", bfloat16", ", compiled", ", bfloat16, compiled")
TRAINING_FORMS = {
    "stock Keras layers (easier)": _KERAS,
    "opennmt-tf": _KERAS,
    "tensorflow-addons": _KERAS,
    "opennmt-py": _TORCH,
    "fairseq": _TORCH,
    "joeynmt": _TORCH,
    "keras-jax": (", mixed_bfloat16",),
}
TRANSLATION_FORMS = {
    "stock Keras layers, own loop": (", mixed_bfloat16",),
    "opennmt-tf": (", mixed_bfloat16",),
    "tensorflow-addons": (", mixed_bfloat16",),
    "opennmt-py": (", bfloat16",),
    "fairseq": (", bfloat16",),
    "joeynmt": (", bfloat16",),
    "marian": (", packed16", ", packed8"),  # its kinds of product with lower precision
}


def serve(rounds: Mapping[str, Callable[[], dict[str, float] | None]], warm_up: int = 2) -> None:
    """Be a worker: run all rounds a few times for warmth, then the one that each line names.

    A round of which a part alone counts returns what that part took.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not come between the answers
    started = time.perf_counter()
    for _ in range(warm_up):
        for round_ in rounds.values():
            round_()
    print(json.dumps({"ready_s": time.perf_counter() - started}), file=answers)
    for line in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        measured = rounds[line.strip()]()
        taken = {
            "wall_s": time.perf_counter() - wall,
            "processor_s": time.process_time() - processor,
        }
        print(json.dumps(measured or taken), file=answers)


class Worker:
    """A process that runs `serve`.

    Args:
        command: its command line.
        environment: its environment; None for this process's.
    """

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.ready_s = self._answer()["ready_s"]

    def round(self, name: str) -> dict[str, float]:
        """Run a round; return its `wall_s` and its `processor_s`, of all threads together."""
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{' '.join(self._command)} ended with status {code}")
        return json.loads(line)


def take_turns(workers: dict[str, Worker], repeat: int, name: str) -> dict[str, list[dict]]:
    """Let each worker run the round of that name in turn, `repeat` times."""
    rounds: dict[str, list] = {case: [] for case in workers}
    for _ in range(repeat):
        for case, worker in workers.items():
            rounds[case].append(worker.round(name))
    return rounds


def median(rounds: list[dict[str, float]], key: str = "wall_s") -> float:
    """Median over rounds."""
    return statistics.median(r[key] for r in rounds)


def median_ratio(rounds: list[dict], others: list[dict], key: str = "wall_s") -> float:
    """Median over turns of how many times as long `others` took as `rounds` in the same turn."""
    return statistics.median(b[key] / a[key] for a, b in zip(rounds, others, strict=True))


def start_workers(
    cases: Sequence[str], work: str, data: str, sizes: Sequence[int]
) -> dict[str, Worker]:
    """Start a process for each case; peers that are not installed or fail are told and left out.

    Args:
        cases: names of peers, with what their form is called, or what this script's own `--worker`
            takes.
        work: what a peer's script is asked to do.
        data: file that all of them read.
        sizes: further arguments of a peer's script.
    """
    workers = {}
    for case in cases:
        name, *form = case.split(", ")
        if name not in PEERS:
            command = [sys.executable, *sys.argv, "--worker", case, "--data", data]
            workers[case] = Worker(command)
        elif python := peer_python(name):
            module = f"peers.{name.replace('-', '_')}"
            command = [python, "-P", "-m", module, work, data, *map(str, sizes), *form]
            try:
                workers[case] = Worker(command, peer_environment())
            except RuntimeError as error:
                print(f"{case} left out: {error}", flush=True)
        else:
            print(f"{case} skipped, to install it: {installation(name)}", flush=True)
    return workers


def installation(name: str) -> str:
    """Return the commands that make a peer's environment."""
    folder = f"$KERAS_ATTENTION_PEERS/{name}"
    steps = [step.replace("pip install", f"{folder}/bin/pip install") for step in PEERS[name]]
    return " && ".join([f"python3.11 -m venv {folder}", *steps])


def peer_python(name: str) -> str | None:
    """Return the Python of a peer's environment, `$KERAS_ATTENTION_PEERS/NAME`, if it is there."""
    python = os.path.join(os.environ.get("KERAS_ATTENTION_PEERS", "peers"), name, "bin", "python")
    return os.path.abspath(python) if os.path.exists(python) else None


def peer_environment() -> dict[str, str]:
    """Return this process's environment with the workers' modules in place of this project's."""
    ours = ("PYTHONPATH", "PYTHONHOME", "KERAS_BACKEND")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    return {**environment, "PYTHONPATH": str(Path(__file__).parent), "PYTHONWARNINGS": "ignore"}
