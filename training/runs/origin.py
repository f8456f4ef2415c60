"""A run's origin: the data, the sizes, the command and the versions that it began with."""

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
    """Return the versions of Python and of the packages that are installed."""
    installed = {"python": platform.python_version()}
    for name in NAMES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@dataclass(frozen=True)
class Origin:
    """The beginning of a run."""

    data: str  # SPEC of the corpus
    corpus: str  # SHA-256 of all training and dev sentences, see `Source.fingerprint`
    train: int  # sentence pairs learned from
    dropped: int  # pairs left out of training: too long, or empty on one side
    unusable: int  # lines of the files that hold no pair
    dev: int  # sentences that progress is measured on
    target_tokens: int  # of an epoch
    vocabulary: tuple[int, int]  # token ids of the source and of the target
    init: str | None  # the run whose weights it started from
    # of pairs with letters as source: those that 99 % have at most, and the target's tokens a
    # letter that all but 0.2 % have at least
    longest: int = 0
    fewest: float = 0.0
    command: list[str] = field(default_factory=lambda: sys.orig_argv[1:])  # what was typed
    # when, UTC
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: dict[str, str] = field(default_factory=versions)


def write_origin(files: RunFiles, origin: Origin) -> None:
    """Write the origin of a run."""
    write_json(files.origin, asdict(origin))


def read_origin(files: RunFiles) -> Origin | None:
    """Return the origin of a run; None where it has no such file."""
    if not files.origin.is_file():
        return None
    try:
        return Origin(**read_json(files.origin))
    except TypeError as error:
        raise RunError(f"cannot read {files.origin}: {error}") from None


def check_corpus(files: RunFiles, spec: str, corpus: str, force: bool) -> None:
    """Refuse to go on with other sentences than the run began with, unless `force` takes them.

    `corpus` is their fingerprint as they are read again.
    """
    origin = read_origin(files)
    if origin is None or origin.corpus == corpus:
        return
    if not force:
        known = f"the sentences that {files.path} began with"
        raise RunError(f"{spec} no longer has {known}: --force goes on with the new ones")
    write_origin(files, replace(origin, corpus=corpus))
