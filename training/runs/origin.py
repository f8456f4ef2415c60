"""A run's origin: its data, counted and hashed, its start, and the versions."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from training.command.errors import RunError
from training.command.files import read_json, write_json
from training.runs.files import RunFiles

PACKAGES = (
    "keras-attention-rnn",
    "keras",
    "tensorflow",
    "tensorflow-text",
    "jax",
    "torch",
    "numpy",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


@dataclass(frozen=True)
class Origin:
    """The beginning of a run.

    Attributes:
        data: SPEC of the corpus.
        corpus: SHA-256 of all training and dev sentences, see `Source.fingerprint`.
        train: sentence pairs learned from.
        dropped: pairs left out of training: too long, or empty on one side.
        unusable: lines of the files that hold no pair.
        dev: sentences that progress is measured on.
        target_tokens: of an epoch.
        vocabulary: token ids of the source and of the target.
        init: the run whose weights it started from.
        command: what was typed.
        begun: when, UTC.
        versions: of the packages that matter, where they are installed.
    """

    data: str
    corpus: str
    train: int
    dropped: int
    unusable: int
    dev: int
    target_tokens: int
    vocabulary: tuple[int, int]
    init: str | None
    command: list[str] = field(default_factory=lambda: sys.orig_argv[1:])
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
    if origin is None or origin.corpus in ("", corpus):
        return
    if not force:
        raise RunError(
            f"{spec} no longer has the sentences that {files.path} began with: --force goes on "
            "with the new ones"
        )
    write_origin(files, replace(origin, corpus=corpus))
