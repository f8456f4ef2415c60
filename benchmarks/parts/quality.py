"""Parts that all cases of quality_peers.py share: a task, pieces as text, sizes, and the clock.

Uses the standard library alone. A piece of a sentence is written as its number in the preset's
vocabulary, `w17`: whatever characters it has, it is one word to every peer. Piece 1 stands for
characters that the vocabulary lacks. No vocabulary has its word, so that peers read their own
token for unknown words; what they say that is no such word is left out.
"""

from __future__ import annotations

import bisect
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

FIRST_PIECE = 4  # numbers below it are special tokens
WIDTHS = range(8, 1025, 8)  # a multiple of the number of heads


def words(pieces: Iterable[int]) -> str:
    """Write the pieces of a sentence as words with spaces between."""
    return " ".join(f"w{number}" for number in pieces)


def pieces(text: str) -> list[int]:
    """Read the pieces of a sentence."""
    return [int(word[1:]) for word in text.split() if re.fullmatch(r"w[0-9]+", word)]


def vocabulary(size: int) -> list[str]:
    """Return the words of all pieces of a vocabulary, special ones left out."""
    return [f"w{number}" for number in range(FIRST_PIECE, size)]


@dataclass(frozen=True)
class Task:
    """The task of a worker.

    Attributes:
        data: folder with `train`, `valid` and `dev`, each as `.source` and `.target`, a sentence a
            line, and `vocabulary.source` and `vocabulary.target`, a word a line.
        output: folder of the case, where the worker writes what it likes, its `hypotheses` of
            `dev` and its `result.json`.
        seconds: wall time of training.
        weights: about how many the model is to have.
        longest: most pieces of a sentence, of either side.
        beam_width: of the search.
        batch_size: sentences translated together.
        seed: of all that is drawn at random.
        learning_rate: in place of the recipe's, or None.
    """

    data: str
    output: str
    seconds: float
    weights: int
    longest: int
    beam_width: int = 5
    batch_size: int = 64
    seed: int = 1
    learning_rate: float | None = None

    def file(self, name: str) -> str:
        """Return the path of a file of the data."""
        return str(Path(self.data) / name)

    def own(self, name: str) -> str:
        """Return the path of a file of the case."""
        return str(Path(self.output) / name)

    def save(self, path: Path) -> None:
        """Write it for `load`."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def load(path: str) -> Task:
    """Read a task."""
    return Task(**json.loads(Path(path).read_text()))


def read_lines(path: str) -> list[str]:
    """Lines of a file, an empty one too."""
    return Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def nearest_width(count: Callable[[int], int], wanted: int) -> int:
    """Return the width of WIDTHS with which a model has most nearly so many weights.

    Args:
        count: from a width to the number of weights, which grows with it.
        wanted: number of weights.
    """
    after = bisect.bisect_left(WIDTHS, wanted, key=count)
    nearest = WIDTHS[max(after - 1, 0) : after + 1]
    return min(nearest, key=lambda width: abs(count(width) - wanted))


def timed(work: Callable[[], object]) -> float:
    """Do something; return how many seconds it took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def serve(run: Callable[[Task, str], dict[str, float | None]]) -> None:
    """Be the worker that the command line asks for: `TASK MODEL`.

    Args:
        run: from a task and the name of a model to its result: `weights`, `seconds` of training,
            `steps` and `epochs` or None where they are not known, `translation_s`; it writes the
            hypotheses.
    """
    _, path, model = sys.argv
    task = load(path)
    result = run(task, model)
    Path(task.own("result.json")).write_text(json.dumps(result) + "\n")
