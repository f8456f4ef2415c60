"""Token ids of a corpus, memory-mapped: of a run, or of `training.prepare --corpus`.

A folder has the arrays of `train` and `dev` (see `training.data.store`), both tokenizers, and dev
and test as text. The file `manifest.json` describes the content and is written last.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.command.files import read_json, write_json
from training.data._lines import read_split
from training.data._pair_files import CorpusError, Split, chosen, merge_sources
from training.data._specs import Spec
from training.data.columns import Form
from training.data.store import SIDES, Sequences

FORMAT = 2
MANIFEST, WORDS = "manifest.json", "source_words.npy"
LEARNED = "train.sources.uint64"  # the `digest_of` each training source


def tokenizer_files(folder: Path) -> tuple[Path, Path]:
    """Return the files of the source's and the target's tokenizer in a folder."""
    return folder / f"{SIDES[0]}.tokenizer", folder / f"{SIDES[1]}.tokenizer"


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of token ids, and the texts that the token ids come from."""

    pairs: int  # training pairs
    own: int  # training pairs of the data; extra data have the others
    settings: dict[str, Any]  # configuration keys that the corpus decides
    digest: str  # SHA-256 of the text files
    files: dict[str, list[int]]  # size and time of each text file
    data: str = ""  # SPEC of the data
    lines: int = 0  # lines of the text files
    unusable: int = 0  # lines without a pair that are not blank
    left_out: dict[str, int] = field(default_factory=dict)  # lines without a pair, by reason
    bytes: dict[str, int] = field(default_factory=dict)  # sizes of the folder's files
    format: int = FORMAT


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest, with the sizes of the folder's files."""
    files = [file for file in sorted(folder.glob("[!.]*")) if file.name != MANIFEST]
    sizes = {file.name: file.stat().st_size for file in files}
    write_json(folder / MANIFEST, asdict(replace(manifest, bytes=sizes)))


class Prepared:
    """Token ids that `training.data._tokens` wrote into a folder.

    Raises CorpusError if the folder has no token ids, or if a file is missing or has another size
    than in the manifest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = self.path / MANIFEST
        if not file.is_file():
            raise CorpusError(f"{self.path} is not a prepared corpus: it has no {file.name}")
        try:
            self.manifest = Manifest(**read_json(file))
            right = self.manifest.format == FORMAT
        except TypeError:  # the manifest has other keys
            right = False
        if not right:
            raise CorpusError(f"{file} expected format {FORMAT}: prepare the corpus anew")
        for name, size in self.manifest.bytes.items():
            there = self.path / name
            if not there.is_file() or there.stat().st_size != size:
                raise CorpusError(f"{there} is missing or damaged: expected {size:,} bytes")
        self.count = self.manifest.pairs
        self.tokenizers = tokenizer_files(self.path)
        self.files = [file, *self.tokenizers]  # files whose content identifies the corpus

    def sides(self, split: str = "train") -> tuple[Sequences, Sequences]:
        """Return the token ids of the sources and of the targets of `train` or `dev`.

        Raises CorpusError if the arrays are damaged.
        """
        try:
            source, target = (Sequences.open(self.path, f"{split}.{side}") for side in SIDES)
        except (OSError, ValueError) as error:
            raise CorpusError(f"cannot read {split} of {self.path}: {error}") from None
        return source, target

    def rows(self, limit: int = 0, seed: int = 0) -> np.ndarray | None:
        """Return the numbers of the training pairs, `(n,)`; None for all.

        `limit` pairs of the data are drawn; 0 for all. All pairs of extra data are training pairs.
        """
        own = self.manifest.own
        if not limit or limit >= own:
            return None
        return np.concatenate([chosen(own, limit, seed), np.arange(own, self.count)])

    def learned(self, rows: np.ndarray | None) -> np.ndarray | None:
        """Return the `digest_of` each training source; None if an older version wrote the folder.

        `rows` are the numbers of the training pairs, as of `rows`.
        """
        file = self.path / LEARNED
        if not file.is_file() or file.stat().st_size != 8 * self.count:
            return None
        digests = np.fromfile(file, np.uint64)
        return digests if rows is None else digests[rows]

    def texts(self, split: str) -> Split:
        """Return the sentences of dev or test. Raises CorpusError if only token ids exist."""
        file = self.path / f"{split}.tsv"
        if split not in ("dev", "test") or not file.is_file():
            there = [name for name in ("dev", "test") if (self.path / f"{name}.tsv").is_file()]
            raise CorpusError(
                f"prepared:{self.path} has no texts of {split!r}; it has {', '.join(there)}"
            )
        return merge_sources(read_split(Spec.of(f"multiref:{file}"), Form()))
