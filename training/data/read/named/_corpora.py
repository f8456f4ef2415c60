"""The named corpora of sentence pairs: their files, and how to read each corpus.

A corpus is searched in `$KERAS_ATTENTION_DATA`, then in the cache directory. If neither has the
corpus, it is downloaded into the cache directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from training.data.read._files import read_blocks, read_text
from training.data.read._pairs import read_split
from training.data.read._sentences import Split
from training.data.read._specs import CorpusError, Spec
from training.data.read.named._download import LANGUAGES, SPLITS, fetch

DATA_VARIABLE = "KERAS_ATTENTION_DATA"


def load(name: str, split: str) -> Split:
    """Return a split of a corpus. Raises CorpusError if the split's files do not exist."""
    files = split_files(name)
    if split not in files:
        folder = next(iter(files.values()))[0].parent
        raise CorpusError(f"{name} has no split {split!r} in {folder}; it has {', '.join(files)}")
    return _CORPORA[name].read(files[split])


def splits(name: str) -> list[str]:
    """Return the names of a corpus's splits."""
    return list(_CORPORA[name].files)


def is_here(name: str) -> bool:
    """Return whether a corpus is built in, or exists in one of `data_folders`."""
    return any((place / _CORPORA[name].folder).is_dir() for place in data_folders())


def split_files(name: str) -> dict[str, list[Path]]:
    """Return the files of each complete split. Raises CorpusError if no split is complete."""
    corpus = _CORPORA[name]
    every = [file for each in corpus.files.values() for file in each]
    folder = find_folder(name, corpus.folder, every)
    files = {split: [folder / file for file in each] for split, each in corpus.files.items()}
    there = {split: paths for split, paths in files.items() if all(p.is_file() for p in paths)}
    if not there:
        raise CorpusError(f"{name}: {folder} has no file of {', '.join(every)}")
    return there


def data_folders() -> list[Path]:
    """Return the folders to search for named corpora. Downloads go to the last folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    own = os.environ.get(DATA_VARIABLE)
    return [*([Path(own)] if own else []), Path(cache, "keras-attention")]


def find_folder(name: str, folder: str, files: Sequence[str]) -> Path:
    """Return the folder of a named set; download the set if no folder exists.

    Raises CorpusError if the set does not exist and cannot be downloaded.
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


def _read_pairs(paths: Sequence[Path]) -> Split:
    form = "tsv" if len(paths) == 1 else "parallel"
    spec = Spec(f"{form}:{','.join(map(str, paths))}", form, tuple(paths))
    return read_split(spec, read_blocks(spec))


def _read_pronunciations(paths: Sequence[Path]) -> Split:
    split = _read_pairs(paths)
    return replace(split, references=[targets[0].split(" ; ") for targets in split.references])


def _read_linked(paths: Sequence[Path]) -> Split:
    """Read lines `source TAB target`; some splits also have gold words, sure and possible links."""
    lines = [line.split("\t") for line in read_text(paths[0]).removesuffix("\n").split("\n")]
    sources, targets, *gold = zip(*lines, strict=True)
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
    """Return the links `(i, j)` in a text of links `i-j`, from source word i to target word j."""
    pairs = (link.partition("-") for link in text.split())
    return frozenset((int(source), int(target)) for source, _, target in pairs)


class _Corpus(NamedTuple):
    folder: str  # path below each of `data_folders`, or an absolute path
    files: Mapping[str, tuple[str, ...]]  # file names of each split
    read: Callable[[Sequence[Path]], Split] = _read_pairs


def _corpora() -> Iterator[tuple[str, _Corpus]]:
    def files(pattern: str) -> dict[str, tuple[str]]:
        return {split: (pattern.format(split),) for split in SPLITS}

    phrasebook = str(Path(__file__).parents[2] / "phrasebook")
    for code in ("fr", "zh"):
        linked = files(f"en-{code}.{{}}.tsv.gz")
        yield f"phrasebook-en-{code}", _Corpus(phrasebook, linked, _read_linked)
    for name in (f"tatoeba-en-{code}" for code in ("fr", "de", "es", "zh")):
        yield name, _Corpus(name, files("{}.tsv.gz"))
    flickr = {"test": "test_2016_flickr", "test2017": "test_2017_flickr"}
    stems = {"train": "train", "dev": "val", **flickr}
    for code in ("de", "fr"):
        aligned = {split: (f"{stem}.en.gz", f"{stem}.{code}.gz") for split, stem in stems.items()}
        yield f"multi30k-en-{code}", _Corpus("multi30k", aligned)
    for ending, stem in (("", "nostress"), ("-stress", "stress")):
        words = files(f"cmudict_{stem}.{{}}.tsv.gz")
        yield f"cmudict{ending}", _Corpus(f"g2p-cmudict{ending}", words, _read_pronunciations)
    for language in (each for level in LANGUAGES.values() for each in level):
        words = files(f"{language}_{{}}.tsv")
        yield f"sigmorphon2021-{language[:3]}", _Corpus("g2p-sigmorphon2021", words)


_CORPORA = dict(_corpora())
NAMES = tuple(_CORPORA)
