"""A run's origin: its data, sizes, command and versions at the start."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from training.command.errors import RunError
from training.command.files import read_json, write_json
from training.runs.files import RunFiles

NAMES = ("keras-attention-rnn", "keras", "tensorflow", "tensorflow-text", "jax", "torch", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of Python and of those packages in NAMES that are installed."""
    installed = {"python": platform.python_version()}
    for name in NAMES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@dataclass(frozen=True)
class Origin:
    """Facts about the start of a run."""

    data: str  # SPEC of the corpus
    corpus: str  # SHA-256 of all training and dev sentences, see `Source.fingerprint`
    train: int  # examples to train on
    dropped: int  # pairs left out of training: too long, or empty on one side
    unusable: int  # lines of the files without a usable pair
    dev: int  # examples of the dev set
    target_tokens: int  # target tokens in an epoch
    vocabulary: tuple[int, int]  # sizes of source and target, such as their numbers of token ids
    init: str | None  # the run whose weights training started from
    # if sources are split into letters, and targets may follow them: 99 % of the sources have at
    # most `longest` letters, and 99.8 % of the pairs at least `fewest` target tokens a letter.
    # Letters of a tag in front of a source, such as "[cy] ", do not count; the longest tag has
    # `tag` letters
    longest: int = 0
    fewest: float = 0.0
    tag: int = 0
    command: list[str] = field(default_factory=lambda: sys.orig_argv[1:])  # the command line
    # the start of the run, UTC
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: dict[str, str] = field(default_factory=versions)


def write_origin(files: RunFiles, origin: Origin) -> None:
    write_json(files.origin, asdict(origin))


def read_origin(files: RunFiles) -> Origin | None:
    """Return the origin of a run; None if the run has no such file."""
    if not files.origin.is_file():
        return None
    try:
        return Origin(**read_json(files.origin))
    except TypeError as error:
        raise RunError(f"cannot read {files.origin}: {error}") from None


def check_corpus(files: RunFiles, spec: str, corpus: str, force: bool) -> None:
    """Raise a RunError if the sentences differ from the sentences at the start of the run.

    With `force`, accept the new sentences and write their fingerprint instead.

    Args:
        files: the files of the run.
        spec: SPEC of the corpus, for the message.
        corpus: the fingerprint of the sentences as they are now.
        force: whether to accept other sentences.
    """
    origin = read_origin(files)
    if origin is None or origin.corpus == corpus:
        return
    if not force:
        raise RunError(
            f"{spec} has changed since {files.path} started. To continue with the new sentences, "
            "add --force"
        )
    write_origin(files, replace(origin, corpus=corpus))
