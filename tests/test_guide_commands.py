"""The commands and files that guides name are there, and the programs take their options.

Run as they stand, which takes minutes, they are by `make test-guides`.
"""

import argparse
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.conftest import free_port
from training.command.errors import UserError

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "guides"
READ = ("own-data.md", "production.md", "page.md", "from-addons.md", "fast.md")
READ += ("without-a-server.md", "from-opennmt.md")


def blocks(guide, kinds):
    text = (GUIDES / guide).read_text(encoding="utf-8")
    return [
        block
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if kind in kinds
    ]


def commands(guide):
    """The words of each of this project's programs that a guide calls, the module first."""
    found = []
    for block in blocks(guide, ("", "bash")):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s#.*", "", line)
            if called := re.search(r"python -m (\S+)(.*)", line):
                words = shlex.split(re.sub(r"[<>|&].*", "", called[2]))
                found.append((called[1], words))
    return found


PAGES = (*READ, "layers.md", "own-model.md", "../../README.md", "../sources.md", "../results.md")
PAGES += tuple(f"../serving/{path.name}" for path in (GUIDES.parent / "serving").glob("*.md"))
COMMANDS = [(guide, *command) for guide in PAGES for command in commands(guide)]


class Taken(Exception):
    """The arguments were read without a mistake."""


def test_the_guides_call_the_programs_that_they_are_about():
    called = {module for _, module, _ in COMMANDS}
    assert called >= {f"training.{name}" for name in ("train", "evaluate", "translate", "presets")}
    assert called >= {
        f"serving.{name}" for name in ("export", "check", "server", "client", "page", "batch")
    }


@pytest.mark.parametrize(("guide", "module", "words"), COMMANDS)
def test_a_program_takes_the_options_of_a_guide(guide, module, words, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parsed(self, *args, **options):
        parse(self, *args, **options)
        raise Taken

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    package = importlib.util.find_spec(module).submodule_search_locations
    main = importlib.import_module(f"{module}.__main__" if package else module).main
    with pytest.raises(Taken):
        main(words)
    with pytest.raises((SystemExit, UserError)):
        main([*words, "--what"])


@pytest.mark.parametrize("guide", READ)
def test_the_files_that_a_guide_names_are_there(guide):
    text = (GUIDES / guide).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    paths = re.findall(r"(?:serving/deploy|benchmarks|training/presets)/[\w./-]*\w", text)
    assert links
    for path in [*(GUIDES / link for link in links), *(ROOT / path for path in paths)]:
        assert path.exists(), path


@pytest.mark.skipif("EVERY_GUIDE" not in os.environ, reason="takes minutes: make test-guides")
def test_the_guide_to_own_data_runs_as_it_stands(tmp_path):
    """All its `bash` blocks in one shell, on few sentences and a port that nobody has."""
    script = "set -eu\n" + "".join(blocks("own-data.md", ("bash",)))
    script = script.replace("8500", str(free_port()))
    corpus = [sys.executable, "-m", "training.phrasebook", "--split", "train", "--count", "300"]
    with (tmp_path / "my.tsv").open("wb") as file:
        subprocess.run(corpus, stdout=file, cwd=ROOT, check=True)
    folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    shell = subprocess.Popen(
        [shutil.which("bash"), "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said = shell.communicate(timeout=540)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)  # the server too
    assert shell.returncode == 0, said + (tmp_path / "server.log").read_text(encoding="utf-8")
    first = (tmp_path / "english.txt").read_text(encoding="utf-8").splitlines()[0]
    assert len((tmp_path / "french.txt").read_text(encoding="utf-8").splitlines()) == 3
    assert "".join(first.split())[:3] in "".join(said.split())
