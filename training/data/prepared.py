"""Token ids of a corpus, mapped into memory: a run's, or those of `training.prepare --corpus`.

A folder has the arrays of `train` and `dev`, see `training.data.store`, both tokenizers, dev and
test as text, and `manifest.json`, which says what they hold and is written last.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.command.files import read_json, write_json
from training.data.columns import Form
from training.data.lines import read_split
from training.data.pair_files import CorpusError, Split, chosen, merge_sources
from training.data.specs import Spec
from training.data.store import SIDES, Sequences

FORMAT = 2
MANIFEST, WORDS = "manifest.json", "source_words.npy"


def tokenizer_files(folder: Path) -> tuple[Path, Path]:
    """Return the files of both tokenizers in a folder."""
    return folder / f"{SIDES[0]}.tokenizer", folder / f"{SIDES[1]}.tokenizer"


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of token ids, and the texts that it was made of."""

    pairs: int  # to learn from
    own: int  # of them, those of the data; extra data have the others
    settings: dict[str, Any]  # the configuration's keys that the corpus decides
    digest: str  # SHA-256 of the files of texts
    files: dict[str, list[int]]  # their sizes and times
    data: str = ""  # their SPEC
    lines: int = 0  # of their files
    unusable: int = 0  # lines without a pair that are not blank
    left_out: dict[str, int] = field(default_factory=dict)  # lines without a pair, by reason
    bytes: dict[str, int] = field(default_factory=dict)  # sizes of the folder's files
    format: int = FORMAT


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest with the sizes of the folder's files."""
    files = [file for file in sorted(folder.glob("[!.]*")) if file.name != MANIFEST]
    sizes = {file.name: file.stat().st_size for file in files}
    write_json(folder / MANIFEST, asdict(replace(manifest, bytes=sizes)))


class Prepared:
    """Token ids that `training.data.tokens` wrote into a folder.

    Raises CorpusError where there are none, or a file is missing or has another size than it had.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = self.path / MANIFEST
        if not file.is_file():
            raise CorpusError(f"{self.path} is not a prepared corpus: it has no {file.name}")
        try:
            self.manifest = Manifest(**read_json(file))
            right = self.manifest.format == FORMAT
        except TypeError:  # it has other keys
            right = False
        if not right:
            raise CorpusError(f"{file} expected format {FORMAT}: prepare the corpus anew")
        for name, size in self.manifest.bytes.items():
            there = self.path / name
            if not there.is_file() or there.stat().st_size != size:
                raise CorpusError(f"{there} is missing or damaged: expected {size:,} bytes")
        self.count = self.manifest.pairs
        self.tokenizers = tokenizer_files(self.path)
        self.files = [file, *self.tokenizers]  # whose content identifies the corpus

    def sides(self, split: str = "train") -> tuple[Sequences, Sequences]:
        """Return the token ids of both sides of `train` or `dev`.

        Raises CorpusError where they are damaged.
        """
        try:
            source, target = (Sequences.open(self.path, f"{split}.{side}") for side in SIDES)
        except (OSError, ValueError) as error:
            raise CorpusError(f"cannot read {split} of {self.path}: {error}") from None
        return source, target

    def rows(self, limit: int = 0, seed: int = 0) -> np.ndarray | None:
        """Return the numbers of the pairs to learn from; None for all.

        `limit` of the data's own pairs are drawn; all of extra data are learned from.
        """
        own = self.manifest.own
        if not limit or limit >= own:
            return None
        return np.concatenate([chosen(own, limit, seed), np.arange(own, self.count)])

    def texts(self, split: str) -> Split:
        """Read the sentences of dev or test; a CorpusError where only token ids are there."""
        file = self.path / f"{split}.tsv"
        if split not in ("dev", "test") or not file.is_file():
            there = [name for name in ("dev", "test") if (self.path / f"{name}.tsv").is_file()]
            raise CorpusError(
                f"prepared:{self.path} has no texts of {split!r}; it has {', '.join(there)}"
            )
        return merge_sources(read_split(Spec.of(f"multiref:{file}"), Form()))
