import subprocess
import sys

import pytest

from serving import commands
from serving.commands import main


def test_a_command_is_its_module_with_the_arguments_after_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    run = []
    monkeypatch.setattr(commands.runpy, "run_module", lambda module, **_: run.append(module))
    main(["phrasebook", "--pair", "en-fr"])
    assert run == ["training.phrasebook"]
    assert sys.argv == ["phrasebook", "--pair", "en-fr"]


@pytest.mark.parametrize(
    ("command", "library", "extra"),
    [("client", "grpc", "client"), ("export", "tensorflow_serving", "serving")],
)
def test_a_missing_library_is_one_line_that_names_the_extra(monkeypatch, command, library, extra):
    def run(module, **_):
        raise ModuleNotFoundError(f"No module named {library!r}", name=f"{library}.part")

    monkeypatch.setattr(commands.runpy, "run_module", run)
    expected = f"error: {library} is not installed: pip install -e '.[{extra}]' in the repository"
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == expected


HELP = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except SystemExit as ended:
    assert ended.code in (None, 0)
heavy = ("tensorflow", "keras", "numpy", "grpc", "google.protobuf")
print(*[name for name in heavy if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "module", sorted(name for name, _ in commands.COMMANDS.values() if name.startswith("serving."))
)
def test_help_loads_no_library(module):
    done = subprocess.run([sys.executable, "-c", HELP, module], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: ")
    assert done.stderr == "\n"


@pytest.mark.parametrize("words", [["client", "--nothing"], ["server", "--port=x"], ["tain"]])
def test_a_wrong_command_line_ends_with_2_and_one_line(words):
    command = [sys.executable, "-m", "serving.commands", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
