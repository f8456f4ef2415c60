"""Every layer beside the values that the tests hold to NumPy: float32, TF32 and bfloat16."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def measure(tiny: bool) -> Iterator[dict[str, Any]]:
    """Give a row a precision and layer: its largest difference, in units of its largest value."""
    command = [sys.executable, "-m", "tests.keras_attention.zoo", *(["3"] if tiny else [])]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith('{"case"'):
                yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {process.returncode}")
