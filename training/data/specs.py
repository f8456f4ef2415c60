"""The form of a SPEC; for one that names nothing the error has what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from training.command.errors import UsageError
from training.data.pair_files import CorpusError

FORMS = ("tsv", "multiref", "parallel", "prepared", "images", "events")


FORM = "prepared"  # of a SPEC


class SpecError(CorpusError, UsageError):
    """A SPEC that names nothing."""


def is_prepared(spec: str) -> bool:
    """Whether a SPEC names a prepared corpus."""
    return spec.startswith(f"{FORM}:")


def unknown(what: str, spec: str, expected: str, names: Sequence[str]) -> SpecError:
    """Return the error for a SPEC that names no `what`, of the `expected` forms and the names."""
    if meant := _meant(spec, names):
        return SpecError(f"Unknown {what} {spec!r}. Did you mean {meant}?")
    return SpecError(f"Unknown {what} {spec!r}; expected {expected} or one of {', '.join(names)}")


def _meant(spec: str, names: Sequence[str]) -> str | None:
    """Return the SPEC that is near, None where none is."""
    path, (form, colon, rest) = Path(spec), spec.partition(":")
    if percent := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", spec):
        return f"{float(percent[1]) / 100:g}, a share of the lines"
    if path.is_dir():
        marks = {"manifest.json": "prepared", "labels.tsv": "images"}
        return next(
            (f"{form}:{spec}" for mark, form in marks.items() if (path / mark).exists()), None
        )
    if path.is_file():
        name = path.name.removesuffix(".gz")
        is_table = name.endswith(".csv") and path.with_name(name).with_suffix(".toml").is_file()
        return f"events:{spec}" if is_table else f"tsv:{spec}"
    if "," in spec and all(Path(part).is_file() for part in spec.split(",")):
        return f"parallel:{spec}"
    if colon:
        near = difflib.get_close_matches(form.lower(), FORMS, n=1)
        return f"{near[0]}:{rest}" if near and near[0] != form else None
    if near := difflib.get_close_matches(spec, names, n=1):
        return near[0]
    return (
        f"tsv:{spec}, a file that is not there"
        if path.suffix in (".tsv", ".txt", ".gz", ".zst")
        else None
    )
