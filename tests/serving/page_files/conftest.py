"""Exports of a run, of which pages are made."""

from pathlib import Path

import pytest

from serving.export.version import export
from training.runs.run import load_run

RUN = Path(__file__).parents[2] / "fixtures" / "old_run" / "run"
SETTINGS = {"beam_width": 3, "num_results": 2, "max_source_length": 9, "length_penalty": 0.7}


@pytest.fixture(scope="session")
def versions(tmp_path_factory):
    """By the type of their weights."""
    root, run = tmp_path_factory.mktemp("models"), load_run(RUN)
    more = {"float32": {}, "int8": {"weights": "int8", "tables": False}}
    return {
        name: export([run], root / name / "old", form="onnx", **SETTINGS, **settings)
        for name, settings in more.items()
    }
