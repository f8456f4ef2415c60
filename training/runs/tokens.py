"""Token ids of a run's texts, kept in its directory: text is tokenized once, when a run begins.

They stand aside until the run begins. Pairs of a prepared corpus stay where they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import RunError, UserError
from training.command.files import aside_of, move, read_json, write_json
from training.config.schema import Config
from training.data.batches import Batches, text_batches
from training.data.pair_files import CorpusError
from training.data.plan import Batching
from training.data.prepared import Prepared, is_prepared
from training.data.store import Sequences
from training.data.subwords import Samplers, make_sampler
from training.data.token_files import check_sizes, read_sides, write_sides
from training.runs.files import RunFiles

FORMAT = 1
_MANIFEST, _WORDS = "manifest.json", "source_words.npy"
_KEYS = ("corpus", "splits", "bytes")


def write_tokens(
    files: RunFiles,
    corpus: str,
    dev: tuple[Sequences, Sequences],
    source_words: np.ndarray | None = None,
    train: tuple[Path, dict[str, Any]] | None = None,
) -> Path:
    """Write token ids aside, for `keep_tokens`; return their folder.

    Args:
        files: of the run.
        corpus: hash of the texts.
        dev: the ids of both sides of the dev set.
        source_words: see `training.sources.text.copying.shared_words`.
        train: folder of the ids of the pairs to learn from, which are moved, and what
            `write_sides` says of them; None for a prepared corpus, which has them.
    """
    aside = aside_of(files.tokens)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        said = {"dev": write_sides(aside, "dev", dev)}
        if train is not None:
            folder, train_said = train
            for file in folder.glob("train.*"):
                file.rename(aside / file.name)
            said = {"train": train_said, **said}
        if source_words is not None:
            np.save(aside / _WORDS, source_words)
        sizes = {file.name: file.stat().st_size for file in sorted(aside.iterdir())}
        manifest = {"format": FORMAT, "corpus": corpus, "splits": said, "bytes": sizes}
        write_json(aside / _MANIFEST, manifest)
    except OSError as error:
        raise RunError(f"cannot write to {files.path}: {error.strerror}") from error
    return aside


def keep_tokens(files: RunFiles) -> Path:
    """Make the token ids that stand aside those of the run; return their folder."""
    shutil.rmtree(files.tokens, ignore_errors=True)
    return move(aside_of(files.tokens), files.tokens)


def has_tokens(files: RunFiles, corpus: str) -> bool:
    """Whether the run has the ids of the texts with this hash, whole."""
    try:
        return _read_manifest(files.tokens)["corpus"] == corpus
    except UserError:
        return False


def read_batches(
    config: Config,
    folder: Path,
    tokenizers: Sequence[Mapping[str, Any]] = (),
    compiled: bool = False,
) -> tuple[Batches, Batches]:
    """Return the batches for training and those of the dev set.

    Args:
        config: of the run.
        folder: of its token ids.
        tokenizers: what the files of both sides hold, to train with `subword_sampling`.
        compiled: whether XLA compiles the step, see `Batching.of`.

    Raises:
        UserError: the ids of the run, or of its prepared corpus, are damaged.
    """
    splits = _read_manifest(folder)["splits"]
    if is_prepared(config.data):
        train = Prepared(config.data).sides(config.train_limit, config.seed)
    else:
        train = read_sides(folder, "train", splits["train"])
    dev = read_sides(folder, "dev", splits["dev"])
    samplers: Samplers = (None, None)
    if config.subword_sampling and tokenizers:
        alpha, (source, target) = config.subword_sampling, tokenizers
        samplers = make_sampler(alpha, source), make_sampler(alpha, target)
    batching = Batching.of(config, compiled)
    pairs = text_batches(batching, *train, training=True, samplers=samplers)
    return pairs, text_batches(batching, *dev, training=False, shapes=pairs.plan.shapes)


def read_source_words(folder: Path) -> np.ndarray:
    """Return the `source_words` of a new model that copies, see `write_tokens`."""
    return np.load(folder / _WORDS)


def _read_manifest(folder: Path) -> dict[str, Any]:
    manifest = read_json(folder / _MANIFEST)
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise RunError(f"{folder} expected format {FORMAT}. Received: {found}")
    if any(key not in manifest for key in _KEYS):
        raise RunError(
            f"{folder / _MANIFEST} expected {', '.join(_KEYS)}. Received: {', '.join(manifest)}"
        )
    try:
        check_sizes(folder, manifest["bytes"])
    except CorpusError as error:
        raise RunError(str(error)) from None
    return manifest
