"""SPECs: the names of data in a configuration and on a command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.command.errors import UsageError, UserError

PREPARED = "prepared"
SPECS = {  # SPECs of texts, each with its meaning
    "tsv:PATH": "source TAB target; further columns are not read",
    "multiref:PATH": "source TAB translation TAB further translation …",
    "parallel:SOURCE,TARGET": "two files, line by line",
    "prepared:DIR": "a corpus of python -m training.prepare --corpus DIR",
}
_OF_TEXTS = tuple(spec.partition(":")[0] for spec in SPECS)
FORMS = (*_OF_TEXTS, "images", "events")


class CorpusError(UserError):
    """A corpus that does not exist or cannot be read. The message is one line."""


class SpecError(CorpusError, UsageError):
    """A SPEC that names no data."""


@dataclass(frozen=True)
class Spec:
    """A SPEC: a form and its paths, or the name of a corpus.

    Files have no splits. They are read to the end, whichever split is requested.
    """

    text: str  # the SPEC as written
    form: str = ""  # one of FORMS; "" for the name of a corpus
    paths: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of(cls, text: str | Spec) -> Spec:
        """Return the SPEC in a text. `parallel:` is split at the first comma between two files.

        Raises CorpusError if `parallel:` has no comma.
        """
        if isinstance(text, Spec):
            return text
        form, _, rest = text.partition(":")
        if form not in FORMS:
            return cls(text)
        if form != "parallel":
            return cls(text, form, (Path(rest).expanduser(),))
        parts = rest.split(",")
        if len(parts) < 2:
            raise CorpusError(
                f"parallel: needs two files, as parallel:SOURCE,TARGET. You gave: {text}"
            )
        cuts = [(",".join(parts[:n]), ",".join(parts[n:])) for n in range(1, len(parts))]
        pairs = [tuple(Path(path).expanduser() for path in cut) for cut in cuts]
        both = (pair for pair in pairs if all(path.exists() for path in pair))
        return cls(text, form, next(both, pairs[0]))

    @property
    def is_file(self) -> bool:
        """Whether the SPEC names files, which have no splits."""
        return self.form not in ("", PREPARED)

    @property
    def is_text(self) -> bool:
        """Whether the SPEC names files of sentence pairs."""
        return self.is_file and self.form in _OF_TEXTS

    def absolute(self) -> str:
        """Return the SPEC with absolute paths, so that it can be read from any directory."""
        paths = ",".join(str(path.absolute()) for path in self.paths)
        return f"{self.form}:{paths}" if self.form else self.text


def unknown(kind: str, spec: str, expected: str, names: Sequence[str]) -> SpecError:
    """Return the error for a SPEC that names no data of this kind, with a similar name if any."""
    if percent := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", spec):
        share = f"{float(percent[1]) / 100:g}"
        return SpecError(f"Unknown {kind} {spec!r}: write {share}, a share of the lines")
    if near := _near(spec, names):
        return SpecError(f"Unknown {kind} {spec!r}. Did you mean {near}?")
    return SpecError(f"Unknown {kind} {spec!r}; expected {expected} or one of {', '.join(names)}")


def _near(spec: str, names: Sequence[str]) -> str | None:
    path, (form, colon, rest) = Path(spec), spec.partition(":")
    if path.is_dir():
        marks = {"manifest.json": PREPARED, "labels.tsv": "images", "labels.csv": "images"}
        forms = [form for mark, form in marks.items() if (path / mark).exists()]
        return f"{forms[0]}:{spec}" if forms else None
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
    is_named_like_text = path.suffix in (".tsv", ".txt", ".gz", ".zst")
    return f"tsv:{spec}, a file that is not there" if is_named_like_text else None
