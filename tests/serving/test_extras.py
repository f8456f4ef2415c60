"""The message of a command where a package is not installed."""

import re
import shutil
import subprocess
import sys

import pytest

from keras_attention import _plot as plot
from serving import commands
from serving.api._printing import PACKAGES
from serving.client import _drawing as drawing
from serving.commands import main
from tests.serving.conftest import TEXT_RUN
from training.command import native
from training.command.errors import UserError

WITHOUT = """
import importlib.abc, runpy, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name in {missing!r} else found(name, *a)
sys.meta_path.insert(0, Without())
for argv in ["--help"], {words!r}:
    try:
        sys.argv = [{module!r}, *argv]
        runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code or argv != ["--help"]:
            raise
"""


def run(module, *words, missing=()):
    """Run a command without packages, which must not keep it from its help."""
    code = WITHOUT.format(module=module, words=words, missing=list(missing))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("serving.client translate --model m text", "google", "client"),
        ("serving.client translate --local m text", "onnxruntime", "onnx"),
        (f"serving.export --run {TEXT_RUN} --output NEW", "rich", "serving"),
        ("serving.check MODEL", "tensorflow_serving", "serving"),
        ("serving.demo --output NEW", "tensorflow_text", "serving"),
        (f"training.evaluate --run {TEXT_RUN} --data phrasebook-en-fr", "sacrebleu", "training"),
        ("training.train --preset cmudict --output NEW", "tensorflow", "training"),
        ("training.prepare --preset cmudict --corpus NEW", "sentencepiece", "training"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(module, missing, extra, tmp_path):
    (tmp_path / "saved_model.pb").touch()
    places = {"NEW": str(tmp_path / "new"), "MODEL": str(tmp_path)}
    module, *words = [places.get(word, word) for word in module.split()]
    status, said = run(module, *words, missing=[missing])
    assert status == 1
    said = without_note(said)
    assert said.startswith(f"error: {PACKAGES.get(missing, missing)}")
    assert said.endswith(f" is not installed: pip install -e '.[{extra}]' in the repository\n")
    assert said.count("\n") == 1


def test_a_training_on_another_backend_names_the_way_without_tensorflow(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(
        native.importlib.util, "find_spec", lambda name: name != "tensorflow" or None
    )
    way = "training.prepare on another machine, copy the run here, and give --resume --output RUN"
    with pytest.raises(UserError, match=rf"repository. To train on jax without it, run {way}$"):
        native.need("training", any_backend=True)


def without_note(said):
    """What a command printed, without the note that the kept run has an old name of a key."""
    return "".join(x for x in said.splitlines(True) if not x.startswith("note: old names"))


@pytest.mark.slow
def test_a_command_that_needs_tensorflow_runs_on_it(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    shutil.copytree(TEXT_RUN, tmp_path, dirs_exist_ok=True)
    (tmp_path / "best.weights.h5").write_bytes(b"")
    (tmp_path / "digests.json").unlink(missing_ok=True)
    status, said = run("training.translate", "--run", str(tmp_path))
    note, *_, error = without_note(said).splitlines()
    assert (status, note) == (1, "note: this command runs on TensorFlow, not on jax")
    assert error.startswith(f"error: cannot read {tmp_path}/best.weights.h5 as the weights")


def test_a_heat_map_needs_matplotlib_and_neither_keras_nor_tensorflow(shared_server, tmp_path):
    without, path = ["tensorflow", "keras"], tmp_path / "map.png"
    words = ("--model", "upper", "--target", f"localhost:{shared_server.port}", "--align")
    drawn = ("serving.client", "translate", *words, "--png", str(path), "one two")
    assert run(*drawn, missing=[*without, "matplotlib"]) == (
        1,
        "error: --png: matplotlib is not installed: pip install -e '.[plot]' in the repository\n",
    )
    assert run(*drawn, missing=without) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_heat_map_of_the_client_alone_is_drawn_by_its_copy(tmp_path, monkeypatch):
    shutil.copy(plot.__file__, tmp_path / "heat_map.py")
    monkeypatch.setattr(drawing, "__file__", str(tmp_path / "drawing.py"))
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    drawing.plot_attention(["a"], ["b"], [[1.0]], path=tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_command_is_its_module_with_the_arguments_after_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    run = []
    monkeypatch.setattr(commands.runpy, "run_module", lambda module, **_: run.append(module))
    main(["phrasebook", "--pair", "en-fr"])
    assert run == ["training.phrasebook"]
    assert sys.argv == ["phrasebook", "--pair", "en-fr"]


def test_a_library_that_a_module_misses_is_one_line_that_names_the_extra(monkeypatch):
    def run(module, **_):
        raise ModuleNotFoundError("No module named 'grpc'", name="grpc.part")

    monkeypatch.setattr(commands.runpy, "run_module", run)
    said = "error: grpcio is not installed: pip install -e '.[client]' in the repository"
    with pytest.raises(SystemExit, match=re.escape(said)):
        main(["client", "--help"])
