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
