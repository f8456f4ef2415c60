"""The message of a command where a package is not installed."""

import re
import subprocess
import sys

import pytest

from serving import commands
from serving.commands import main

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
sys.argv = {argv!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def run(module, *arguments, missing=()):
    code = WITHOUT.format(module=module, argv=[module, *arguments], missing=list(missing))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("serving.client --model m text", "grpc", "client"),
        ("serving.client --local m text", "onnxruntime", "onnx"),
        ("serving.export", "rich", "serving"),
        ("serving.check", "tensorflow_serving", "serving"),
        ("serving.demo", "tensorflow_text", "serving"),
        ("training.evaluate", "sacrebleu", "training"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(module, missing, extra):
    module, *words = module.split()  # the client's own --help needs nothing
    status, said = run(module, *(words or ["--help"]), missing=[missing])
    assert status == 1
    assert said.startswith(f"error: {missing}")
    assert said.endswith(f" is not installed: pip install -e '.[{extra}]' in the repository\n")
    assert said.count("\n") == 1


def test_a_command_that_needs_tensorflow_runs_on_it(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    status, said = run("training.translate", "--run", "/none")
    assert (status, said.splitlines()) == (
        1,
        [
            "note: this command runs on TensorFlow, not on jax",
            "error: /none is not a run: it has no config.toml",
        ],
    )


def test_a_heat_map_needs_matplotlib_and_neither_keras_nor_tensorflow(shared_server, tmp_path):
    without, path = ["tensorflow", "keras"], tmp_path / "map.png"
    words = ("--model", "upper", "--target", f"localhost:{shared_server.port}", "--align")
    drawn = ("serving.client", *words, "--png", str(path), "one two")
    assert run(*drawn, missing=[*without, "matplotlib"]) == (
        1,
        "error: --png needs matplotlib: pip install -e '.[plot]' in the repository\n",
    )
    assert run(*drawn, missing=without) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")


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
    said = "error: grpc is not installed: pip install -e '.[client]' in the repository"
    with pytest.raises(SystemExit, match=re.escape(said)):
        main(["client", "--help"])
