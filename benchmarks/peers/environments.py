"""The peers' environments: how they are installed, and workers that run in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from parts.turns import Worker

# Peers, and what installs each into its environment. Pins that no longer hold are left out; of
# PyTorch the build without CUDA is enough, where the package index has it.
PEERS = {
    "opennmt-tf": [
        "pip install tensorflow-cpu==2.13.1 tensorflow-addons==0.21.0 opennmt-tf==2.32.0"
    ],
    "opennmt-py": [
        "pip install torch==2.13.0 numpy configargparse 'ctranslate2>=4,<5' tensorboard flask "
        "waitress 'pyonmttok>=1.37,<2' pyyaml sacrebleu rapidfuzz pyahocorasick six sentencepiece",
        "pip install --no-deps opennmt-py==3.5.1",
    ],
    "joeynmt": [
        "pip install torch==2.13.0 numpy pyyaml importlib_metadata sentencepiece subword-nmt "
        "sacrebleu packaging tensorboard matplotlib",
        "pip install --no-deps joeynmt==2.3.0",
    ],
    "marian": ["pip install numpy pymarian==1.12.42"],
}
# The forms of a peer, after its name: in lower precision, compiled, or both.
_KERAS = (", mixed_bfloat16", ", XLA", ", mixed_bfloat16, XLA")
_TORCH = (", bfloat16", ", compiled", ", bfloat16, compiled")
TRAINING_FORMS = {
    "stock Keras layers (easier)": _KERAS,
    "opennmt-tf": _KERAS,
    "opennmt-py": _TORCH,
    "joeynmt": _TORCH,
}
TRANSLATION_FORMS = {
    "stock Keras layers, own loop": (", mixed_bfloat16",),
    "opennmt-tf": (", mixed_bfloat16",),
    "opennmt-py": (", bfloat16",),
    "joeynmt": (", bfloat16",),
    "marian": (", packed16", ", packed8"),  # its kinds of product with lower precision
}


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
    steps = [step.replace("pip ", f"{folder}/bin/pip ", 1) for step in PEERS[name]]
    return " && ".join([f"python3.11 -m venv {folder}", *steps])


def peer_python(name: str) -> str | None:
    """Return the Python of a peer's environment, `$KERAS_ATTENTION_PEERS/NAME`, if it is there."""
    python = os.path.join(os.environ.get("KERAS_ATTENTION_PEERS", "peers"), name, "bin", "python")
    return os.path.abspath(python) if os.path.exists(python) else None


def peer_environment() -> dict[str, str]:
    """Return this process's environment with the workers' modules in place of this project's."""
    ours = ("PYTHONPATH", "PYTHONHOME", "KERAS_BACKEND")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    return {**environment, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
