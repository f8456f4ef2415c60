"""Exports of a run, of which pages are made."""

import pytest

from serving.export._version import export
from tests.serving.conftest import TEXT_RUN, TEXT_SETTINGS
from training.runs.run import load_run


@pytest.fixture(scope="session")
def versions(onnx_translator, tmp_path_factory):
    """By the type of their weights."""
    output = tmp_path_factory.mktemp("models") / "old"
    settings = {**TEXT_SETTINGS, "weights": "int8", "tables": False}
    rounded = export([load_run(TEXT_RUN)], output, form="onnx", **settings)
    return {"float32": onnx_translator, "int8": rounded}
