"""A corpus that `training.prepare --corpus` wrote: token ids that are read where they lie.

The arrays are those of `training.data.token_files`. `manifest.json` says what they hold, and is
written last.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.command.files import read_json
from training.data.pair_files import CorpusError, Split, merge_sources, read_tsv

if TYPE_CHECKING:
    from training.data.store import Sequences

FORM = "prepared"  # of a SPEC
FORMAT = 1


def is_prepared(spec: str) -> bool:
    """Whether a SPEC names a prepared corpus."""
    return spec.startswith(f"{FORM}:")


@dataclass(frozen=True)
class Streamed:
    """Pairs whose token ids were written without holding their texts.

    Attributes:
        folder: where the arrays of `train` are, and the tokenizers.
        said: what a manifest says of both sides; None where no ids were written.
        dev: the dev set.
        fingerprint: hash of the pairs and of the dev set.
        unusable: lines of the files that held no pair.
    """

    folder: Path
    said: dict[str, Any] | None
    dev: Split
    fingerprint: str
    unusable: int


def read_texts(file: Path) -> Split:
    """Read sentences with their references, a column for each."""
    return merge_sources(read_tsv([file], all_columns=True))


class Prepared:
    """A prepared corpus.

    Raises:
        CorpusError: if there is none, or a file is missing or has another size than it had.
    """

    def __init__(self, spec: str) -> None:
        self.spec, self.path = spec, Path(spec.partition(":")[2])
        file = self.path / "manifest.json"
        if not file.is_file():
            raise CorpusError(f"{self.path} is not a prepared corpus: it has no {file.name}")
        self.manifest: dict[str, Any] = read_json(file)
        if self.manifest.get("format") != FORMAT:
            raise CorpusError(f"{file} expected format {FORMAT}: prepare the corpus anew")
        from training.data.token_files import SIDES, check_sizes

        check_sizes(self.path, self.manifest["bytes"])
        self.count: int = self.manifest["pairs"]
        self.unusable: int = self.manifest["unusable"]
        self.tokenizers = tuple(self.path / f"{side}.tokenizer" for side in SIDES)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the configuration's keys that were settled when it was prepared."""
        return self.manifest["settings"]

    def sides(self, limit: int = 0, seed: int = 0) -> tuple[Sequences, Sequences]:
        """Return the token ids of both sides, or of `limit` pairs: see `read_sides`."""
        from training.data.token_files import read_sides

        return read_sides(self.path, "train", self.manifest, limit, seed)

    def texts(self, split: str) -> Split:
        """Read the sentences of dev or test.

        Raises:
            CorpusError: if nothing was held out for it; or for the training pairs, which are token
                ids alone.
        """
        file = self.path / f"{split}.tsv"
        if split not in ("dev", "test") or not file.is_file():
            there = [name for name in ("dev", "test") if (self.path / f"{name}.tsv").is_file()]
            raise CorpusError(f"{self.spec} has no texts of {split!r}; it has {', '.join(there)}")
        return read_texts(file)

    def fingerprint(self, dev: Split) -> str:
        """Hash what a run learns from and is measured on."""
        known = json.dumps(self.manifest["sha256"], sort_keys=True)
        held = json.dumps([dev.sources, dev.references], ensure_ascii=False)
        return hashlib.sha256(f"{known}\n{held}".encode()).hexdigest()
