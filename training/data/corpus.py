"""Sentence pairs by name, or from files.

A SPEC is `tsv:PATH` (source TAB target; further columns are not read), `multiref:PATH` (source TAB
reference TAB reference …), `parallel:SOURCE,TARGET` (line-aligned files), `prepared:PATH` (written
by `training.prepare --corpus`; here its texts, of dev and test), or a name in `NAMES`.
`training.data.lines` reads files. They have no splits: they are read to their end whichever split
is asked for; `training.data.splits` makes some of them.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from training.command.errors import UsageError
from training.data.lines import (
    SPECS,
    Block,
    Skipped,
    files_of,
    parse,
    read_blocks,
    read_split,
    survey,
    text_block,
)
from training.data.named import corpora
from training.data.named.corpora import NAMES
from training.data.pair_files import CorpusError, Split, merge_sources, sample

PREPARED = "prepared"
TEXT_SPECS = {**SPECS, "prepared:DIR": "a corpus of python -m training.prepare --corpus DIR"}
FORMS = (*(spec.partition(":")[0] for spec in TEXT_SPECS), "images", "events")


class SpecError(CorpusError, UsageError):
    """A SPEC without any data."""


Blocks = Callable[[], Iterable[Block]]


def load(
    spec: str, split: str, *, limit: int | None = None, seed: int = 0, script_of: str = ""
) -> Split:
    """Read one split of a corpus: `train`, `dev`, `test`, or another that it has.

    In every split but `train`, lines with the same source are one sentence with several references.
    Of more than `limit` sentences a random sample is taken. References are written in the script of
    the targets of `script_of`, another corpus. Raises CorpusError where the corpus or the split is
    not there, or a file cannot be read as one.
    """
    if files_of(spec):
        loaded = read_split(spec)
    elif is_prepared(spec):
        loaded = _prepared(spec).texts(split)
    elif spec in NAMES:
        loaded = corpora.load(spec, split)
    else:
        raise unknown("corpus", spec, ", ".join(TEXT_SPECS), NAMES)
    loaded = corpora.in_target_script(script_of, loaded)
    if split != "train":
        loaded = merge_sources(loaded)
    return sample(loaded, limit, seed)


def blocks_of(spec: str, limit: int | None = None, seed: int = 0) -> Blocks:
    """Return a function that yields the lines of a SPEC for training.

    A named corpus, of which `limit` pairs are drawn, is read once.
    """
    if files_of(spec):
        return functools.partial(read_blocks, spec)
    block = text_block(spec, load(spec, "train", limit=limit, seed=seed))
    return lambda: [block]


def check(spec: str, split: str | None = None, *, source: str = "text") -> None:
    """Raise a CorpusError where a SPEC's file, or a corpus of texts or its split, is not there.

    Nothing is read or downloaded. Names of images and events are not known here.
    """
    form, _, path = spec.partition(":")
    if is_prepared(spec):
        _prepared(spec)
    elif missing := [
        str(file)
        for file in files_of(spec) or ([Path(path).expanduser()] if form in FORMS else [])
        if not file.exists()
    ]:
        raise CorpusError(f"Cannot read {missing[0]}: No such file or directory")
    elif spec in NAMES and split and split not in corpora.splits(spec):
        raise CorpusError(
            f"{spec} has no split {split!r}; it has {', '.join(corpora.splits(spec))}"
        )
    elif source == "text" and not files_of(spec) and spec not in NAMES:
        raise unknown("corpus", spec, ", ".join(TEXT_SPECS), NAMES)


def sample_pairs(spec: str) -> tuple[int, list[tuple[str, str]]]:
    """Return how many training pairs a SPEC has, and those of a sample of its lines.

    Files of up to 20 MB are sampled to the last line. Of larger ones the number is estimated.
    Raises CorpusError as `load`.
    """
    if not files_of(spec):
        pairs = load(spec, "train").pairs()
        return len(pairs), pairs
    count, drawn, _ = survey(spec, read_blocks(spec))
    pairs = parse(drawn, skipped := Skipped()).pairs()
    if drawn.lines == count:
        skipped.check(spec)
    return round(len(pairs) * count / drawn.lines), pairs


def files_of_training(spec: str) -> list[Path]:
    """Return the files of a SPEC, of a named corpus those of train and dev."""
    if is_prepared(spec):
        return _prepared(spec).files
    if spec not in NAMES:
        return files_of(spec)
    files = corpora.split_files(spec)
    return [file for split in ("train", "dev") for file in files.get(split, ())]


def is_prepared(spec: str) -> bool:
    """Whether a SPEC names a prepared corpus."""
    return spec.startswith(f"{PREPARED}:")


def _prepared(spec: str) -> Any:
    from training.data.prepared import Prepared  # NumPy, for which no --help waits

    return Prepared(spec)


def is_file(spec: str) -> bool:
    """Whether a SPEC names files, which have no splits."""
    return ":" in spec and not is_prepared(spec)


def absolute(spec: str) -> str:
    """Return the SPEC with absolute paths, which can be read from any directory."""
    form, colon, paths = spec.partition(":")
    if not colon:
        return spec
    files = files_of(spec) or [Path(paths).expanduser()]
    return f"{form}:{','.join(str(file.absolute()) for file in files)}"


def unknown(kind: str, spec: str, expected: str, names: Sequence[str]) -> SpecError:
    """Return the error for a SPEC that names no data of a kind, with a near name if any."""
    if percent := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", spec):
        share = f"{float(percent[1]) / 100:g}"
        return SpecError(f"Unknown {kind} {spec!r}: write {share}, a share of the lines")
    if near := _near(spec, names):
        return SpecError(f"Unknown {kind} {spec!r}. Did you mean {near}?")
    return SpecError(f"Unknown {kind} {spec!r}; expected {expected} or one of {', '.join(names)}")


def _near(spec: str, names: Sequence[str]) -> str | None:
    path, (form, colon, rest) = Path(spec), spec.partition(":")
    if path.is_dir():
        marks = {"manifest.json": PREPARED, "labels.tsv": "images"}
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
