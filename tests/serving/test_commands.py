import sys

import pytest

from serving import commands
from serving.client import __main__ as client
from serving.commands import main


def test_every_command_is_listed_with_what_it_does(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    for name, (_, about) in commands.COMMANDS.items():
        assert any(line.split(None, 1) == [name, about] for line in said.splitlines())


def test_an_unknown_command_is_one_line():
    with pytest.raises(SystemExit, match=r"^error: expected a command, train, .* Received: tain$"):
        main(["tain"])


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


def test_a_heat_map_without_matplotlib_is_refused_before_the_server_is_asked(monkeypatch, capsys):
    monkeypatch.setattr(client.importlib.util, "find_spec", lambda name: None)
    assert client.main(["--model", "none", "--align", "--png", "map.png", "text"]) == 1
    assert capsys.readouterr().err == (
        "error: --png needs matplotlib: pip install -e '.[plot]' in the repository\n"
    )
