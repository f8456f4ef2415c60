"""SPECs that name nothing say what was probably meant."""

import subprocess
import sys

import pytest

from training.command.errors import UsageError
from training.data import corpus
from training.sources.events import data as events


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("sums.tsv", "a.en", "a.fr", "visits.csv", "visits.toml", "other.csv"):
        (tmp_path / name).write_text("a\tb\n")
    for name in ("words/manifest.json", "pictures/labels.tsv", "empty/x"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("sums.tsv", "tsv:sums.tsv"),
        ("a.en,a.fr", "parallel:a.en,a.fr"),
        ("words", "prepared:words"),
        ("pictures", "images:pictures"),
        ("visits.csv", "events:visits.csv"),
        ("other.csv", "tsv:other.csv"),
        ("tvs:sums.tsv", "tsv:sums.tsv"),
        ("TSV:sums.tsv", "tsv:sums.tsv"),
        ("paralel:a,b", "parallel:a,b"),
        ("cmudct", "cmudict"),
        ("gone.tsv", "tsv:gone.tsv, a file that is not there"),
    ],
)
def test_a_near_miss_is_told(folder, spec, meant):
    with pytest.raises(UsageError, match=rf"^Unknown corpus '{spec}'\. ") as error:
        corpus.load(spec, "train")
    assert str(error.value).endswith(f". Did you mean {meant}?")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spec", ["klingon", "empty", "what:x"])
def test_what_is_near_nothing_is_not_guessed(folder, spec):
    with pytest.raises(UsageError) as error:
        corpus.load(spec, "train")
    assert "Did you mean" not in str(error.value)


def test_events_have_names_of_their_own():
    with pytest.raises(UsageError, match=r"Unknown events 'pbc'\. Did you mean pbcseq\?"):
        events.load("pbc", "train")


def test_the_command_ends_with_2(folder):
    done = subprocess.run(
        [sys.executable, "-m", "training.train", "--data", "sums.tsv"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: Unknown corpus 'sums.tsv'")
    assert done.stderr.endswith("Did you mean tsv:sums.tsv?\n")
    assert done.stderr.count("\n") == 1
