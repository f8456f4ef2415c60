"""Token ids of a corpus, memory-mapped: of a run, or of `training.prepare --corpus`.

A folder has the arrays of `train` and `dev` (see `training.data.tokens.store`), both tokenizers,
and dev and test as text. The file `manifest.json` describes the content and is written last.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.data.read._manifest import prepared_texts, read_manifest, tokenizer_files
from training.data.read._sentences import Split, chosen
from training.data.read._specs import PREPARED, CorpusError, Spec
from training.data.tokens.store import SIDES, Sequences

WORDS = "source_words.npy"
LEARNED = "train.sources.uint64"  # the `digest_of` each training source


class Prepared:
    """Token ids that `training.data.tokens._encoding` wrote into a folder.

    Args:
        path: the folder.
        data: the data of a run. If these are a prepared corpus, the folder has only dev, and the
            training pairs are in the folder of the corpus.

    Raises CorpusError if the folder has no token ids, or if a file is missing or has another size
    than in the manifest.
    """

    def __init__(self, path: Path, data: Spec | None = None) -> None:
        self.path, self.manifest = path, read_manifest(path)
        self.count = self.manifest.pairs
        self.tokenizers = tokenizer_files(path)
        self.training = self  # the folder with the training pairs
        if data is not None and data.form == PREPARED:
            self.training = Prepared(data.paths[0])

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
        return prepared_texts(self.path, split)
