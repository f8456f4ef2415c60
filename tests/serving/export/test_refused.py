"""An export that cannot be made is one clear line, and leaves what was there."""

import resource

import numpy as np
import pytest

from serving.export import __main__ as script
from serving.export import version as writer
from serving.export.version import export
from tests.training.conftest import tiny_run  # noqa: F401 - a fixture
from training.command.errors import UserError


def test_an_ensemble_in_bfloat16_is_one_clear_line(tiny_run):  # noqa: F811
    arguments = ["--run", "a", "--run", "b", "--output", "x", "--precision", "bfloat16"]
    with pytest.raises(UserError, match=r"--precision bfloat16 expected one --run"):
        script.main(arguments)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_not_exported(tiny_run, tmp_path, monkeypatch, value):  # noqa: F811
    monkeypatch.setattr("training.runs.run.load_ensemble", lambda paths: [tiny_run])
    weight = tiny_run.model.get_layer("decoder").cell.kernel
    before = weight.numpy()
    try:
        weight.assign(np.where(np.arange(weight.shape[1]) == 3, value, before))
        with pytest.raises(
            UserError, match=rf"{len(before)} values of its weight .*kernel are not"
        ):
            script.main(["--run", "run", "--output", str(tmp_path / "models" / "x")])
    finally:
        weight.assign(before)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_nothing_is_left(tiny_run, tmp_path):  # noqa: F811
    (tmp_path / "models").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises((UserError, OSError)) as caught:
            export([tiny_run], tmp_path / "models" / "x", beam_width=1, num_results=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert "too large" in str(caught.value)
    assert list((tmp_path / "models").iterdir()) == []


def test_an_export_that_fails_leaves_what_was_there(tiny_run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(writer, "Exported", lambda *_, **__: 1 / 0)
    (tmp_path / "x" / "1").mkdir(parents=True)
    with pytest.raises(ZeroDivisionError):
        export([tiny_run], tmp_path / "x", beam_width=1, num_results=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["x", "1"]
