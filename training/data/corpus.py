"""Sentence pairs by name, or from files.

A SPEC is `tsv:PATH` (source TAB target; further columns are not read), `multiref:PATH` (source TAB
reference TAB reference …), `parallel:SOURCE,TARGET` (line-aligned files), `prepared:PATH` (written
by `training.prepare --corpus`; here its texts, of dev and test), or a name in `NAMES`.
`training.data.lines` reads files. They have no splits: they are read to their end whichever split
is asked for; `training.data.splits` makes some of them.

Named corpora are looked for in `$KERAS_ATTENTION_DATA`, then in the cache directory, and are
downloaded into the latter where they are in neither.

Tatoeba's Chinese mixes two scripts, 44 % of its sentences Traditional. As `tatoeba-en-zh` all of
it, references too, is read in Simplified characters; as a file it is read as it stands.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from training.command.errors import UsageError
from training.data.download import LANGUAGES, SPLITS, fetch
from training.data.lines import FORMS as FILE_FORMS
from training.data.lines import Skipped, files_of, parse, read_blocks, read_split, survey
from training.data.pair_files import CorpusError, Split, merge_sources, read_text, sample

DATA_VARIABLE = "KERAS_ATTENTION_DATA"
PREPARED = "prepared"
TEXT_SPECS = "tsv:PATH, multiref:PATH, parallel:SOURCE,TARGET, prepared:PATH"
FORMS = (*FILE_FORMS, PREPARED, "images", "events")


class SpecError(CorpusError, UsageError):
    """A SPEC that names nothing."""


def load(spec: str, split: str, *, limit: int | None = None, seed: int = 0) -> Split:
    """Read one split of a corpus: `train`, `dev`, `test`, or another that it has.

    In every split but `train`, lines with the same source are one sentence with several references.
    Of more than `limit` sentences a random sample is taken. Raises CorpusError where the corpus or
    the split is not there, or a file cannot be read as one.
    """
    if files_of(spec):
        loaded = read_split(spec)
    elif is_prepared(spec):
        from training.data.prepared import Prepared  # NumPy, for which no --help waits

        loaded = Prepared(spec).texts(split)
    elif spec in _CORPORA:
        files = _files_of(spec)
        if split not in files:
            folder = next(iter(files.values()))[0].parent
            there = ", ".join(files)
            raise CorpusError(f"{spec} has no split {split!r} in {folder}; it has {there}")
        loaded = in_target_script(spec, _CORPORA[spec].read(files[split]))
    else:
        raise unknown("corpus", spec, TEXT_SPECS, NAMES)
    if split != "train":
        loaded = merge_sources(loaded)
    return sample(loaded, limit, seed)


def check(spec: str, split: str | None = None, *, source: str = "text") -> None:
    """Raise a CorpusError where a SPEC's file, or a corpus of texts or its split, is not there.

    Nothing is read or downloaded. Names of images and events are not known here.
    """
    form, _, path = spec.partition(":")
    if is_prepared(spec):
        from training.data.prepared import Prepared  # NumPy, for which no --help waits

        Prepared(spec)
    elif missing := [
        str(file)
        for file in files_of(spec) or ([Path(path).expanduser()] if form in FORMS else [])
        if not file.exists()
    ]:
        raise CorpusError(f"Cannot read {missing[0]}: No such file or directory")
    elif spec in _CORPORA and split and split not in splits(spec):
        raise CorpusError(f"{spec} has no split {split!r}; it has {', '.join(splits(spec))}")
    elif source == "text" and not files_of(spec) and spec not in _CORPORA:
        raise unknown("corpus", spec, TEXT_SPECS, NAMES)


def sample_pairs(spec: str) -> tuple[int, list[tuple[str, str]]]:
    """Return how many training pairs a SPEC has, and those of a sample of its lines.

    Files of up to 20 MB are sampled to the last line. Of larger ones the number is estimated.
    Raises CorpusError as `load`.
    """
    if not files_of(spec):
        pairs = load(spec, "train").pairs()
        return len(pairs), pairs
    count, drawn = survey(spec, read_blocks(spec), remember=True)
    pairs = parse(drawn, skipped := Skipped()).pairs()
    if drawn.lines == count:
        skipped.check(spec)
    return round(len(pairs) * count / drawn.lines), pairs


def splits(name: str) -> list[str]:
    """Return the splits of a named corpus."""
    return list(_CORPORA[name].files)


def files_of_training(spec: str) -> list[Path]:
    """Return the files of a SPEC, of a named corpus those of train and dev."""
    if spec not in _CORPORA:
        return files_of(spec)
    files = _files_of(spec)
    return [file for split in ("train", "dev") for file in files.get(split, ())]


def is_here(name: str) -> bool:
    """Whether a named corpus is built in, or in one of `data_folders`."""
    folder, splits, _ = _CORPORA[name]
    files = [Path(folder, file) for each in splits.values() for file in each]
    return any(all((place / file).is_file() for file in files) for place in data_folders())


def is_prepared(spec: str) -> bool:
    """Whether a SPEC names a prepared corpus."""
    return spec.startswith(f"{PREPARED}:")


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
    """Return the error for a SPEC that names no data of a kind, with a near one if there is any."""
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


def in_target_script(spec: str, split: Split) -> Split:
    """Return the sentences with their references in the script of a corpus's targets."""
    if spec != _MIXED_CHINESE:
        return split
    references = [[simplified(text) for text in texts] for texts in split.references]
    return replace(split, references=references)


def simplified(text: str) -> str:
    """Write Traditional Chinese characters as Simplified ones; all other characters stay.

    By OpenCC's dictionaries of words and characters, in which 後天 is 后天 and 皇后 stays 皇后. Of
    the two, `tw2s` alone has the Taiwanese particle 著 (now 着), and `t2s` alone leaves the
    Simplified particle 么 as it is.
    """
    return _converter("tw2s" if "著" in text else "t2s").convert(text)


@functools.lru_cache
def _converter(dictionary: str) -> Any:
    import opencc

    return opencc.OpenCC(dictionary)


def data_folders() -> list[Path]:
    """Return the folders in which named corpora are looked for; the last one takes downloads."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    own = os.environ.get(DATA_VARIABLE)
    return [*([Path(own)] if own else []), Path(cache, "keras-attention")]


def find_folder(name: str, folder: str, files: Sequence[str]) -> Path:
    """Return the folder of a named set, downloaded where it is not there.

    Raises CorpusError where it is not there and cannot be downloaded.
    """
    places = [place / folder for place in data_folders()]
    for place in places:
        if place.is_dir():
            return place
    try:
        fetch(folder, places[-1])
    except (OSError, ValueError) as error:
        tried = " or ".join(map(str, places))
        raise CorpusError(
            f"{name} is not in {tried}, and {error}; put {', '.join(files)} into {places[-1]}"
        ) from None
    return places[-1]


def _files_of(name: str) -> dict[str, list[Path]]:
    """Return the files of each split that is there."""
    corpus = _CORPORA[name]
    expected = [file for files in corpus.files.values() for file in files]
    folder = find_folder(name, corpus.folder, expected)
    files = {split: [folder / file for file in each] for split, each in corpus.files.items()}
    there = {split: paths for split, paths in files.items() if all(p.is_file() for p in paths)}
    if not there:
        raise CorpusError(f"{name}: {folder} has none of its files: {', '.join(expected)}")
    return there


def _read_pairs(paths: Sequence[Path]) -> Split:
    form = "tsv" if len(paths) == 1 else "parallel"
    return read_split(f"{form}:{','.join(map(str, paths))}")


def _read_pronunciations(paths: Sequence[Path]) -> Split:
    split = _read_pairs(paths)
    return replace(split, references=[targets[0].split(" ; ") for targets in split.references])


def _read_linked(paths: Sequence[Path]) -> Split:
    """Read rows `source TAB target`, and the words, sure links and possible links of some."""
    rows = [line.split("\t") for line in read_text(paths[0]).removesuffix("\n").split("\n")]
    sources, targets, *gold = zip(*rows, strict=True)
    split = Split([*sources], [[target] for target in targets])
    if not gold:
        return split
    source_words, target_words, *marks = gold
    sure, possible = ([_links(text) for text in texts] for texts in marks)
    return replace(
        split,
        source_words=[text.split(" ") for text in source_words],
        target_words=[text.split(" ") for text in target_words],
        sure=sure,
        possible=[each | others for each, others in zip(sure, possible, strict=True)],
    )


def _links(text: str) -> frozenset[tuple[int, int]]:
    """Read links `i-j` of source word i and target word j."""
    pairs = (link.partition("-") for link in text.split())
    return frozenset((int(source), int(target)) for source, _, target in pairs)


class _Corpus(NamedTuple):
    folder: str  # below each of `data_folders`, or absolute
    files: Mapping[str, tuple[str, ...]]  # of each split
    read: Callable[[Sequence[Path]], Split] = _read_pairs


def _three(name: str) -> dict[str, tuple[str]]:
    """Return the files of the splits that most corpora have."""
    return {split: (name.format(split),) for split in SPLITS}


_MIXED_CHINESE = "tatoeba-en-zh"
_PHRASEBOOK = str(Path(__file__).with_name("phrasebook"))
_FLICKR = {
    "train": "train",
    "dev": "val",
    "test": "test_2016_flickr",
    "test2017": "test_2017_flickr",
}
_CORPORA = {
    **{
        f"phrasebook-en-{code}": _Corpus(
            _PHRASEBOOK, _three(f"en-{code}.{{}}.tsv.gz"), _read_linked
        )
        for code in ("fr", "zh")
    },
    **{
        f"tatoeba-en-{code}": _Corpus(f"tatoeba-en-{code}", _three("{}.tsv.gz"))
        for code in ("fr", "de", "es", "zh")
    },
    **{
        f"multi30k-en-{code}": _Corpus(
            "multi30k",
            {split: (f"{stem}.en.gz", f"{stem}.{code}.gz") for split, stem in _FLICKR.items()},
        )
        for code in ("de", "fr")
    },
    **{
        f"cmudict{form}": _Corpus(
            f"g2p-cmudict{form}", _three(f"cmudict_{stem}.{{}}.tsv.gz"), _read_pronunciations
        )
        for form, stem in (("", "nostress"), ("-stress", "stress"))
    },
    **{
        f"sigmorphon2021-{language[:3]}": _Corpus(
            "g2p-sigmorphon2021", _three(f"{language}_{{}}.tsv")
        )
        for languages in LANGUAGES.values()
        for language in languages
    },
}
NAMES = tuple(_CORPORA)
