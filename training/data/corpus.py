"""Where sentence pairs come from: by name, or from files.

A SPEC is `tsv:PATH` (source TAB target; further columns are ignored), `multiref:PATH` (source TAB
reference TAB reference …), `parallel:SOURCE,TARGET` (line-aligned files), or a name in `NAMES`.
Any file may be compressed with gzip if its name ends in `.gz`. Files have no splits: they are
read whole whichever split is asked for; `training.data.splits` makes some of them. Blank lines of
a TSV, and lines with text in one column alone, are left out.

Named corpora are looked for in `$KERAS_ATTENTION_DATA`, then in the cache directory, and are
downloaded into the latter where they are in neither.

Tatoeba's Chinese mixes two scripts, 44 % of its sentences Traditional. As `tatoeba-en-zh` all of
it, references too, is read in Simplified characters; as a file it is read as it stands.
"""

import gzip
import os
import random
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.data.chinese import simplified
from training.data.download import fetch
from training.errors import UserError

DATA_VARIABLE = "KERAS_ATTENTION_DATA"
MOST_UNUSABLE = 0.1  # share of lines without a pair; with more it is another kind of file
Links = frozenset[tuple[int, int]]


class CorpusError(UserError):
    """A corpus that is not there or cannot be read; the message is one line."""


@dataclass(frozen=True)
class Split:
    """Sentences, or images, of one split of a corpus, with their reference translations.

    Texts are NFC with single spaces. Gold words and links exist for some corpora and are None
    for the others; they are those of the first reference.

    Attributes:
        sources: source sentences; of images the files, as bytes or as paths.
        references: for each source, one or more translations.
        source_words: words of each source.
        target_words: words of each first reference.
        sure: for each sentence, links `(source word, target word)` that must be found.
        possible: links that may be found, the sure ones included.
        boxes: of images, for each the box of each character of the first reference: left, top,
            right, bottom, as fractions of the image's size.
        unusable: lines of the files that hold no pair.
    """

    sources: list[Any]
    references: list[list[str]]
    source_words: list[list[str]] | None = None
    target_words: list[list[str]] | None = None
    sure: list[Links] | None = None
    possible: list[Links] | None = None
    boxes: list[list[tuple[float, float, float, float]]] | None = None
    unusable: int = 0

    def pairs(self) -> list[tuple[Any, str]]:
        """Every source with each of its references."""
        return [
            (source, reference)
            for source, references in zip(self.sources, self.references, strict=True)
            for reference in references
        ]

    def words(self) -> tuple[list[list[str]], list[list[str]]]:
        """The gold words of sources and of first references.

        Raises:
            CorpusError: the corpus has none.
        """
        if self.source_words is None or self.target_words is None:
            raise CorpusError("The corpus has no gold words")
        return self.source_words, self.target_words

    def gold(self) -> tuple[list[Links], list[Links]]:
        """The sure and the possible gold links.

        Raises:
            CorpusError: the corpus has none.
        """
        if self.sure is None or self.possible is None:
            raise CorpusError("The corpus has no gold links")
        return self.sure, self.possible

    def select(self, indices: Sequence[int]) -> "Split":
        """The sentences at these positions."""
        chosen: dict[str, Any] = {
            name: [values[i] for i in indices]
            for name, values in vars(self).items()
            if isinstance(values, list)
        }
        return replace(self, **chosen)


def load(
    spec: str, split: str, *, limit: int | None = None, seed: int = 0, merge: bool = True
) -> Split:
    """Read one split of a corpus.

    In every split but `train`, lines with the same source are one sentence with several
    references.

    Args:
        spec: a name or a SPEC of files, see the module's text.
        split: `train`, `dev`, `test`, or another that the corpus has.
        limit: most sentences; a random sample is taken.
        seed: seed of the sample, and of generated sentences.
        merge: False keeps every line a sentence of its own.

    Raises:
        CorpusError: the corpus or the split is not there, or a file cannot be read as one.
    """
    form, colon, paths = spec.partition(":")
    if colon and form in ("tsv", "multiref"):
        loaded = _read_tsv([Path(paths)], all_columns=form == "multiref")
    elif colon and form == "parallel":
        source, comma, target = paths.partition(",")
        if not comma:
            raise CorpusError(f"Expected parallel:SOURCE,TARGET, received {spec!r}")
        loaded = _read_parallel([Path(source), Path(target)])
    elif spec in _PHRASEBOOKS:
        loaded = _generate_phrasebook(spec, split, limit, seed)
    elif spec in _CORPORA:
        loaded = written_like(spec, _load_named(spec, split))
    else:
        raise CorpusError(
            f"Unknown corpus {spec!r}; expected tsv:PATH, multiref:PATH, parallel:SOURCE,TARGET "
            f"or one of {', '.join(NAMES)}"
        )
    if merge and split != "train":
        loaded = merge_sources(loaded)
    return sample(loaded, limit, seed)


def sample(split: Split, limit: int | None, seed: int = 0) -> Split:
    """At most so many sentences, chosen at random, in their order; all of them for None."""
    if limit is None or limit >= len(split.sources):
        return split
    return split.select(sorted(random.Random(seed).sample(range(len(split.sources)), limit)))


def splits(name: str) -> list[str]:
    """Return the splits of a named corpus."""
    return list(_PHRASEBOOK_SIZES if name in _PHRASEBOOKS else _CORPORA[name].files)


def is_here(name: str) -> bool:
    """Whether a named corpus is built in, or in one of `data_folders`."""
    if name in _PHRASEBOOKS:
        return True
    folder, files = _CORPORA[name].folder, _CORPORA[name].files
    return any(
        all((place / folder / file).is_file() for file in paths)
        for place in data_folders()
        for paths in files.values()
    )


def is_file(spec: str) -> bool:
    """Whether a SPEC names files, which have no splits."""
    return ":" in spec


def absolute(spec: str) -> str:
    """Return the SPEC with absolute paths, which can be read from any directory."""
    form, colon, paths = spec.partition(":")
    if not colon:
        return spec
    each = paths.split(",") if form == "parallel" else [paths]
    return f"{form}:{','.join(str(Path(path).absolute()) for path in each)}"


def written_like(spec: str, split: Split) -> Split:
    """The sentences with their references in the script of a corpus's targets.

    Args:
        spec: the corpus that a model was trained on.
        split: sentences from anywhere, to compare its translations with.
    """
    return _simplify(split) if spec == _MIXED_CHINESE else split


def data_folders() -> list[Path]:
    """Folders in which named corpora are looked for; the last one takes downloads."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folders = [Path(cache, "keras-attention")]
    if os.environ.get(DATA_VARIABLE):
        folders.insert(0, Path(os.environ[DATA_VARIABLE]))
    return folders


def _load_named(name: str, split: str) -> Split:
    corpus = _CORPORA[name]
    expected = [file for files in corpus.files.values() for file in files]
    folder = find_folder(name, corpus.folder, expected)
    files = {key: [folder / file for file in value] for key, value in corpus.files.items()}
    there = [key for key, paths in files.items() if all(path.is_file() for path in paths)]
    if not there:
        raise CorpusError(f"{name}: {folder} has none of its files: {', '.join(expected)}")
    if split not in there:
        raise CorpusError(f"{name} has no split {split!r} in {folder}; it has {', '.join(there)}")
    return corpus.read(files[split])


def find_folder(name: str, folder: str, files: Sequence[str]) -> Path:
    """Return the folder of a named set, downloaded where it is not there.

    Args:
        name: of the set.
        folder: where it stands among the data.
        files: what has to be in it, for the message where it cannot be had.

    Raises:
        CorpusError: if it is not there and cannot be downloaded.
    """
    places = [place / folder for place in data_folders()]
    for place in places:
        if place.is_dir():
            return place
    try:
        fetch(folder, places[-1])
    except (OSError, ValueError) as error:
        looked = " or ".join(str(place) for place in places)
        raise CorpusError(
            f"{name} is not in {looked}, and {error}; put {', '.join(files)} into {places[-1]}"
        ) from None
    return places[-1]


def _generate_phrasebook(name: str, split: str, limit: int | None, seed: int) -> Split:
    from training import phrasebook

    sizes = _PHRASEBOOK_SIZES
    if split not in sizes:
        raise CorpusError(f"{name} has no split {split!r}; it has {', '.join(sizes)}")
    count = sizes[split] if limit is None else limit
    pairs = phrasebook.generate(name.removeprefix("phrasebook-"), split, count, seed)
    return Split(
        sources=[pair.source for pair in pairs],
        references=[[pair.target] for pair in pairs],
        source_words=[list(pair.source_words) for pair in pairs],
        target_words=[list(pair.target_words) for pair in pairs],
        sure=[pair.sure for pair in pairs],
        possible=[pair.links for pair in pairs],
    )


def merge_sources(split: Split) -> Split:
    """One sentence for each source, with the different references of all its lines."""
    first: dict[str, int] = {}
    references: dict[str, dict[str, None]] = {}
    for i, source in enumerate(split.sources):
        first.setdefault(source, i)
        references.setdefault(source, {}).update(dict.fromkeys(split.references[i]))
    merged = split.select(list(first.values()))
    return replace(merged, references=[list(texts) for texts in references.values()])


def _clean(text: str) -> str:
    """NFC with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _read_lines(path: Path) -> list[str]:
    return read_text(path).removesuffix("\n").split("\n")


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed if its name ends in `.gz`.

    Raises:
        CorpusError: if it cannot be read, is not UTF-8, or empty.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"Cannot read {path}: {reason}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(f"{path}, line {line}: expected UTF-8 text") from None
    if not text.strip():
        raise CorpusError(f"{path} is empty")
    return text


def _read_tsv(paths: Sequence[Path], *, all_columns: bool = False, separator: str = "") -> Split:
    """Rows `source TAB target`; with a separator, a target holds several references."""
    (path,) = paths
    split = Split([], [])
    unusable = []
    for number, line in enumerate(_read_lines(path), start=1):
        columns = [_clean(column) for column in line.split("\t")]
        if not any(columns):
            continue
        targets = columns[1:] if all_columns else columns[1:2]
        if separator:
            targets = [part for target in targets for part in target.split(separator)]
        targets = [target for target in targets if target]
        if not columns[0] or not targets:
            unusable.append(number)
            continue
        split.sources.append(columns[0])
        split.references.append(targets)
    lines = len(split.sources) + len(unusable)
    if not split.sources or len(unusable) > max(1, MOST_UNUSABLE * lines):
        raise CorpusError(
            f"{path}, line {unusable[0]}: expected source TAB target, both with text; "
            f"{len(unusable)} of {lines} lines are not so"
        )
    return replace(split, unusable=len(unusable))


def _simplify(split: Split) -> Split:
    references = [[simplified(text) for text in texts] for texts in split.references]
    return replace(split, references=references)


def _read_tiny(paths: Sequence[Path]) -> Split:
    return _read_tsv(paths, all_columns="multiref" in paths[0].name)


def _read_pronunciations(paths: Sequence[Path]) -> Split:
    return _read_tsv(paths, separator=" ; ")


def _read_parallel(paths: Sequence[Path]) -> Split:
    sources, targets = (_read_lines(path) for path in paths)
    if len(sources) != len(targets):
        raise CorpusError(
            f"Expected as many lines in {paths[0]} and {paths[1]}, "
            f"received {len(sources)} and {len(targets)}"
        )
    return Split([_clean(line) for line in sources], [[_clean(line)] for line in targets])


def _read_alibi(paths: Sequence[Path]) -> Split:
    """Tales as triples of files: English and French sentences, and French-English links."""
    sources, references, sure, possible = [], [], [], []
    source_words, target_words = [], []
    for english, french, links in zip(paths[::3], paths[1::3], paths[2::3], strict=True):
        rows = [_numbered(path) for path in (english, french, links)]
        if not rows[0].keys() == rows[1].keys() == rows[2].keys():
            raise CorpusError(f"Expected the same sentence numbers in {english}, {french}, {links}")
        for number, words in rows[0].items():
            source_words.append(words)
            target_words.append(rows[1][number])
            sources.append(_join(words, r" (?=['’](?:s|t|d|m|n|re|ve|ll)\b)| (?=[;:!?])"))
            references.append([_join(rows[1][number], r"(?<=['’]) | (?=-\w)")])
            found = [re.fullmatch(r"(\d+)([-p])(\d+)", link) for link in rows[2][number]]
            marks = [mark for mark in found if mark]
            if len(marks) < len(found):
                raise CorpusError(f"{links}, sentence {number}: expected links such as 0-1 or 2p3")
            links_found = {(int(mark[3]), int(mark[1])): mark[2] for mark in marks}
            sure.append(frozenset(link for link, mark in links_found.items() if mark == "-"))
            possible.append(frozenset(links_found))
    return Split(sources, references, source_words, target_words, sure, possible)


def _numbered(path: Path) -> dict[str, list[str]]:
    """Words after the number and the tab of each line."""
    rows = (_clean(line).split(" ") for line in _read_lines(path))
    return {row[0]: row[1:] for row in rows}


def _join(words: list[str], closed: str) -> str:
    """Text of tokenized words: spaces go where `closed` matches and around other punctuation."""
    text = re.sub(r'" ([^"]*) "', r'"\1"', " ".join(words))
    return re.sub(rf"{closed}| (?=[.,)…])|(?<=\() ", "", text)


@dataclass(frozen=True)
class _Corpus:
    folder: str
    files: Mapping[str, tuple[str, ...]]  # of each split
    read: Callable[[Sequence[Path]], Split]


def _tatoeba(language: str) -> _Corpus:
    files = {split: (f"{split}.tsv.gz",) for split in ("train", "dev", "test")}
    return _Corpus(f"tatoeba-en-{language}", files, _read_tsv)


def _multi30k(language: str) -> _Corpus:
    stems = {
        "train": "train",
        "dev": "val",
        "test": "test_2016_flickr",
        "test2017": "test_2017_flickr",
    }
    files = {split: (f"{stem}.en.gz", f"{stem}.{language}.gz") for split, stem in stems.items()}
    return _Corpus("multi30k", files, _read_parallel)


def _sigmorphon(prefix: str) -> _Corpus:
    files = {split: (f"{prefix}_{split}.tsv",) for split in ("train", "dev", "test")}
    return _Corpus("g2p-sigmorphon2021", files, _read_tsv)


_TALES = (
    ("BlueBeard", "LaBarbeBleue"),
    ("MasterCat", "ChatBotte"),
    ("TheInn", "LAuberge"),
    ("TheLastLesson", "LaDerniereClasse"),
    ("TheVision", "LaVision"),
)
_MIXED_CHINESE = "tatoeba-en-zh"
_PHRASEBOOK_SIZES = {"train": 40_000, "dev": 500, "test": 1_000}
_PHRASEBOOKS = ("phrasebook-en-fr", "phrasebook-en-zh")
_CORPORA = {
    **{f"tatoeba-en-{language}": _tatoeba(language) for language in ("fr", "de", "es", "zh")},
    "tiny-en-fr": _Corpus(
        "tiny-en-fr", {"train": ("train.tsv",), "dev": ("dev_multiref.tsv",)}, _read_tiny
    ),
    **{f"multi30k-en-{language}": _multi30k(language) for language in ("de", "fr")},
    "cmudict": _Corpus(
        "g2p-cmudict",
        {split: (f"cmudict_nostress.{split}.tsv.gz",) for split in ("train", "dev", "test")},
        _read_pronunciations,
    ),
    "sigmorphon2021-fre": _sigmorphon("fre"),
    "sigmorphon2021-eng": _sigmorphon("eng_us"),
    "alibi-en-fr": _Corpus(
        "align-alibi-en-fr",
        {
            "test": tuple(
                file
                for english, french in _TALES
                for file in (
                    f"{english}_sents.txt",
                    f"{french}_sents.txt",
                    f"ali_w2w_{french}_{english}.txt",
                )
            )
        },
        _read_alibi,
    ),
}
NAMES = (*_PHRASEBOOKS, *_CORPORA)
