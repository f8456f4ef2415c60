"""SHA-256 of a run's files, kept in the run: damaged files are not used."""

from __future__ import annotations

import hashlib
from pathlib import Path

from training.command.errors import RunError
from training.command.files import move, read_json, write_json
from training.runs.files import RunFiles


def sha256(file: Path) -> str:
    """Return the digest of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def keep_digests(files: RunFiles) -> None:
    """Write the digests of a new run's files, and of no others."""
    write_json(files.digests, {file.name: [sha256(file)] for file in files.all_sides()})


def put(files: RunFiles, aside: Path, final: Path) -> None:
    """Give a file that was written aside its name, and keep its digest.

    The digest of the file before stays beside it, for a crash may come between the two.
    """
    name = _name(files, final)
    known = {key: of for key, of in _read(files).items() if (files.path / key).exists()}
    if name not in known and final.exists():
        known[name] = [sha256(final)]
    known[name] = [sha256(aside), *known.get(name, [])][:2]
    write_json(files.digests, known)
    move(aside, final)


def check(files: RunFiles, file: Path) -> None:
    """Refuse a damaged file; one whose digest an older version did not keep is not looked at."""
    found = sha256(file)  # first: training may go on meanwhile
    known = _read(files).get(_name(files, file))
    if known and found not in known:
        raise RunError(
            f"{file} is damaged: expected the SHA-256 of {files.digests.name}, {known[0]}. "
            f"Received: {found}"
        )


def _name(files: RunFiles, file: Path) -> str:
    return file.relative_to(files.path).as_posix()


def _read(files: RunFiles) -> dict[str, list[str]]:
    if not files.digests.is_file():
        return {}
    known = read_json(files.digests)
    if not isinstance(known, dict) or not all(isinstance(of, list) for of in known.values()):
        raise RunError(f"cannot read {files.digests}: expected lists of SHA-256")
    return known
