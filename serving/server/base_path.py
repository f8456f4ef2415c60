"""The loadable versions below a model's base path, compared from one scan to the next."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving.server import storage
from serving.server.completeness import missing_part

log = logging.getLogger(__name__)


@dataclass
class Found:
    """The versions that a scan found.

    Attributes:
        present: directories on disk, by number.
        ready: versions that are loaded or can be loaded.
        fingerprints: of the files of each.
        unreadable: the error of each version whose files cannot be read.
    """

    present: dict[int, Path] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)
    fingerprints: dict[int, storage.Fingerprint] = field(default_factory=dict)
    unreadable: dict[int, OSError] = field(default_factory=dict)


class BasePath:
    """Scans a base path. It remembers the last scan: a version that still changes is not ready."""

    def __init__(self) -> None:
        self._unsettled: dict[int, storage.Fingerprint] = {}
        self._incomplete: dict[int, storage.Fingerprint] = {}
        self._found_empty = False

    def look(
        self,
        name: str,
        path: Path,
        available: Collection[int],
        failed: Mapping[int, storage.Fingerprint],
        settle: bool,
    ) -> Found | None:
        """Scan the path; None if it was there and cannot be read now.

        Args:
            name: of the model, for the log.
            path: of its versions.
            available: versions that are loaded.
            failed: versions that failed to load, with their files then; changed files make them
                ready again.
            settle: whether a version must be unchanged since the last scan.
        """
        found = Found()
        try:
            found.present = storage.read_versions(path)
        except OSError as error:
            if available:
                if not self._found_empty:
                    log.error(
                        "Base path %s of %s cannot be read, its versions stay: %s",
                        *(path, name, error),
                    )
                self._found_empty = True
                return None
        for number, version_dir in found.present.items():
            try:
                files = found.fingerprints[number] = storage.fingerprint(version_dir)
                if number in available or (
                    failed.get(number) != files
                    and self._is_loadable(name, number, version_dir, files, settle)
                ):
                    found.ready.append(number)
            except OSError as error:
                if number in available:
                    found.ready.append(number)
                else:
                    found.unreadable[number] = error
        self._unsettled = found.fingerprints
        if not (found.present or self._found_empty):
            hint = "Did you forget to name your leaf directory as a number (eg. '/1/')?"
            if path.name.isdecimal():
                hint = f"Did you mean {path.parent}?"
            log.warning(
                "No versions of servable %s found under base path %s. %s", *(name, path, hint)
            )
        self._found_empty = not found.present
        return found

    def _is_loadable(
        self, name: str, number: int, path: Path, files: storage.Fingerprint, settle: bool
    ) -> bool:
        if settle and self._unsettled.get(number) != files:
            log.info("Version %d of %s is new or changing: looking again", number, name)
            return False
        if self._incomplete.get(number) == files:
            return False
        if missing := missing_part(path):
            log.warning("Version %d of %s is not complete: no %s", number, name, missing)
            self._incomplete[number] = files
            return False
        return True
