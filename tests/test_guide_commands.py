"""The commands and files that guides name are there, and the programs take their options.

Run as they stand, which takes minutes, they are by `make test-guides`.
"""

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving.demo import __main__ as demo
from tests.serving.conftest import free_port
from tests.test_commands import parser_of

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "guides"


def blocks(guide, kinds):
    text = (GUIDES / guide).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for kind, block in found if kind in kinds]


def commands(guide):
    """The words of each of this project's programs that a guide calls, the module first."""
    lines = "".join(blocks(guide, ("", "bash"))).replace("\\\n", " ").splitlines()
    for line in lines:
        if called := re.search(r"python -m (\S+)(.*)", re.sub(r"\s#.*", "", line)):
            yield called[1], shlex.split(re.sub(r"[<>|&].*", "", called[2]))


DOCS = GUIDES.parent
PAGES = ("../../README.md", *(f"../{path.name}" for path in DOCS.glob("*.md")))
PAGES += tuple(path.name for path in GUIDES.glob("*.md"))
PAGES += tuple(f"../{path.parent.name}/{path.name}" for path in DOCS.glob("s[ce]*/*.md"))
COMMANDS = [(guide, *command) for guide in PAGES for command in commands(guide)]
for name, one in demo.DEMOS.items():
    values = {**one, "name": name, "output": ".", "port": 1}
    for line in (*demo.STAGES.values(), demo.SERVE, *demo.QUESTIONS[one["questions"]]):
        _, module, *words = demo.words_of(line.format(**values))
        COMMANDS.append((f"demo {name}", module, words))


@pytest.mark.parametrize(("guide", "module", "words"), COMMANDS)
def test_a_program_takes_the_options_of_a_guide(guide, module, words):
    if module == "serving.client":  # whose commands have parsers of their own
        module, words = f"{module}._{words[0]}", words[1:]
    parser_of(module).parse_args(words)


def test_the_blocks_of_every_page_are_run():
    """A test that runs a page's blocks of Python has the page's name."""
    tests = "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        if "\n```python\n" in page.read_text(encoding="utf-8"):
            assert f'{page.name}"' in tests, page


def test_the_files_that_guides_name_are_there():
    """Links are followed by `make docs`."""
    texts = "".join(path.read_text(encoding="utf-8") for path in GUIDES.glob("*.md"))
    paths = {*re.findall(r"(?:serving/deploy|benchmarks|training/presets)/[\w./-]*\w", texts)}
    paths -= {"benchmarks/recurrent_step.py"}  # of an older commit, which measured layers
    assert not {path for path in paths if not (ROOT / path).exists()}


def run_blocks(guide, folder):
    """Run all `bash` blocks of a guide in one shell, on a free port; return its output."""
    ends = "set -eu\ntrap 'jobs -p | xargs -r kill' EXIT\n"  # the server, too
    script = ends + "".join(blocks(guide, ("bash",))).replace("8500", str(free_port()))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    options["timeout"] = 3600  # of a hang: the machine may be busy
    bash = [shutil.which("bash"), "-c", script]
    done = subprocess.run(bash, cwd=folder, env=environment, **options)
    logs = "".join(path.read_text(encoding="utf-8") for path in folder.glob("server.log"))
    assert done.returncode == 0, done.stdout + logs
    return done.stdout


SOME = "EVERY_GUIDE" not in os.environ
MINUTES = pytest.mark.skipif(SOME, reason="takes minutes: make test-guides")


@MINUTES
def test_the_guide_to_own_data_runs_as_it_stands(tmp_path):
    pairs = [sys.executable, "-m", "training.phrasebook", "--split", "train", "--count", "300"]
    with (tmp_path / "my.tsv").open("wb") as file:
        subprocess.run(pairs, stdout=file, cwd=ROOT, check=True)
    output = run_blocks("own-data.md", tmp_path)
    first = (tmp_path / "english.txt").read_text(encoding="utf-8").splitlines()[0]
    assert len((tmp_path / "french.txt").read_text(encoding="utf-8").splitlines()) == 3
    assert "".join(first.split())[:3] in "".join(output.split())


@MINUTES
def test_the_guide_to_pronouncers_runs_as_it_stands(tmp_path):
    """A language of open syllables, whose letters are its phones but for c."""
    rng = random.Random(2)
    syllables = [consonant + vowel for consonant in "bcdfglmnpst" for vowel in "aeiou"]
    words = {"".join(rng.choices(syllables, k=rng.randrange(1, 4))) for _ in range(500)}
    phones = {word: " ".join(word.replace("c", "k")) for word in sorted(words)}
    *unseen, _ = rng.sample(sorted(phones), 20)
    lines = (f"{word}\t{phones[word]}\n" for word in phones if word not in unseen)
    (tmp_path / "my.tsv").write_text("".join(lines))
    tokens = (f"{x} {n}\n" for n, x in enumerate("abdefgiklmnopstu"))
    (tmp_path / "tokens.txt").write_text("".join(tokens))
    (tmp_path / "text.txt").write_text(" ".join(phones).upper())
    run_blocks("pronouncer.md", tmp_path)
    lexicon = (tmp_path / "lexicon.txt").read_text(encoding="utf-8").splitlines()
    spoken = dict(line.split(" ", 1) for line in lexicon)
    assert list(spoken) == list(phones)
    assert sum(spoken[word] == phones[word] for word in unseen) > len(unseen) / 2
