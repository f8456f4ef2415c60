"""Phonetisaurus's commands, which pronunciation_peers.py starts in its environment.

A transducer of an 8-gram over letters aligned with phones (Novak, Minematsu and Hirose 2016), with
the settings of its Python package. Training takes seconds, so that no limit of time is needed.
"""

from __future__ import annotations

import csv
import subprocess
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

MODEL = "Phonetisaurus"


class Pronouncer:
    """Its model.

    Args:
        python: that of its environment.
        folder: where all is kept.
    """

    def __init__(self, python: str, folder: Path) -> None:
        self._command = Path(python).parent / "phonetisaurus"
        self._lexicon, self._model = folder / "lexicon.txt", folder / "model.fst"

    def learn(self, pairs: Iterable[Sequence[str]]) -> None:
        """Align the letters of words with their phones, and count."""
        lines = [f"{spelled(word)} {phones}\n" for word, phones in pairs]
        self._lexicon.write_text("".join(lines), encoding="utf-8")
        self._run("train", str(self._lexicon))

    def say(self, words: Sequence[str]) -> list[str]:
        """Return the phones of each word: those of the best path, "" where there is none."""
        asked = [spelled(word) for word in words]
        said = read_predictions(self._run("predict", text="".join(f"{word}\n" for word in asked)))
        return [said.get(word, "") for word in asked]

    def _run(self, command: str, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [str(self._command), command, "--model", str(self._model), *arguments],
            input=text,
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode:
            raise RuntimeError(f"phonetisaurus {command} ended with status {done.returncode}")
        return done.stdout


class Peer:
    """It in the form of yoyodyne's peers, some of whose arguments it has no use for.

    Args:
        python: that of its environment.
        name: MODEL.
        data: folder with `train.tsv` and `dev.tsv`: a word, a tab, its phones between spaces.
        folder: where all is kept.
    """

    def __init__(self, python: str, name: str, data: Path, folder: Path) -> None:
        self._pronouncer, self._data = Pronouncer(python, folder), data

    def prepare(self) -> None:
        """Do nothing: there are no costs of edits."""

    def train(self, seconds: float, seed: int) -> None:
        """Learn the words, whatever time that takes."""
        self._pronouncer.learn(self._pairs("train"))

    def predict(self, beam_width: int) -> list[str]:
        """Return the phones of each word of dev."""
        return self._pronouncer.say([word for word, _ in self._pairs("dev")])

    def epochs(self) -> int:
        """Return 1: all is counted once."""
        return 1

    def _pairs(self, split: str) -> list[list[str]]:
        with (self._data / f"{split}.tsv").open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file, delimiter="\t"))


def spelled(word: str) -> str:
    """Return a word in letters and marks, with no space in it; "_" would be its own sign."""
    return unicodedata.normalize("NFD", word).replace(" ", "·")


def read_predictions(text: str) -> dict[str, str]:
    """Return the phones of each word; lines are a word, a space, and its phones."""
    pairs = (line.partition(" ") for line in text.splitlines())
    return {word: phones for word, _, phones in pairs}
