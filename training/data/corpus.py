"""Where sentence pairs come from: by name, or from files.

A SPEC is `tsv:PATH` (source TAB target; further columns are not read), `multiref:PATH` (source TAB
reference TAB reference …), `parallel:SOURCE,TARGET` (line-aligned files), `prepared:PATH` (what
`training.prepare --corpus` wrote; here its texts, of dev and test), or a name in `NAMES`.
`training.data.lines` reads files. They have no splits: they are read whole whichever split is
asked for; `training.data.splits` makes some of them.

Named corpora are looked for in `$KERAS_ATTENTION_DATA`, then in the cache directory, and are
downloaded into the latter where they are in neither.

Tatoeba's Chinese mixes two scripts, 44 % of its sentences Traditional. As `tatoeba-en-zh` all of
it, references too, is read in Simplified characters; as a file it is read as it stands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from training.data import lines, sigmorphon
from training.data.chinese import simplified
from training.data.download import fetch
from training.data.lines import files_of, parallel, read_split
from training.data.linked import read_alibi, read_linked
from training.data.pair_files import CorpusError, Split, merge_sources, sample
from training.data.specs import is_prepared, unknown

DATA_VARIABLE = "KERAS_ATTENTION_DATA"
STDIN = "-"  # in place of a path: standard input, which training.prepare --corpus reads


def load(spec: str, split: str, *, limit: int | None = None, seed: int = 0) -> Split:
    """Read one split of a corpus.

    In every split but `train`, lines with the same source are one sentence with several
    references.

    Args:
        spec: a name or a SPEC of files, see the module's text.
        split: `train`, `dev`, `test`, or another that the corpus has.
        limit: most sentences; a random sample is taken.
        seed: seed of the sample.

    Raises:
        CorpusError: the corpus or the split is not there, or a file cannot be read as one.
    """
    if files_of(spec):
        loaded = read_split(spec)
    elif is_prepared(spec):
        from training.data.prepared import Prepared  # NumPy, for which no --help waits

        loaded = Prepared(spec).texts(split)
    elif spec in _CORPORA:
        loaded = written_like(spec, _load_named(spec, split))
    else:
        forms = "tsv:PATH, multiref:PATH, parallel:SOURCE,TARGET, prepared:PATH"
        raise unknown("corpus", spec, forms, NAMES)
    if split != "train":
        loaded = merge_sources(loaded)
    return sample(loaded, limit, seed)


def read_pairs(spec: str) -> Iterable[tuple[str, str]]:
    """Return the training pairs of a SPEC, which are not held where it names files.

    Raises:
        CorpusError: as `load`.
    """
    return lines.read_pairs(spec) if files_of(spec) else load(spec, "train").pairs()


def splits(name: str) -> list[str]:
    """Return the splits of a named corpus."""
    return list(_CORPORA[name].files)


def is_here(name: str) -> bool:
    """Whether a named corpus is built in, or in one of `data_folders`."""
    folder, files = _CORPORA[name].folder, _CORPORA[name].files
    return any(
        all((place / folder / file).is_file() for file in paths)
        for place in data_folders()
        for paths in files.values()
    )


def is_file(spec: str) -> bool:
    """Whether a SPEC names files, which have no splits."""
    return ":" in spec and not is_prepared(spec)


def absolute(spec: str) -> str:
    """Return the SPEC with absolute paths, which can be read from any directory."""
    form, colon, paths = spec.partition(":")
    if not colon:
        return spec
    each = parallel(paths) if form == "parallel" else [paths]
    return f"{form}:{','.join(_absolute(path) for path in each)}"


def _absolute(path: str) -> str:
    return path if path == STDIN else str(Path(path).expanduser().absolute())


def written_like(spec: str, split: Split) -> Split:
    """The sentences with their references in the script of a corpus's targets."""
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


def _simplify(split: Split) -> Split:
    references = [[simplified(text) for text in texts] for texts in split.references]
    return replace(split, references=references)


def _read_pairs(paths: Sequence[Path]) -> Split:
    return read_split(f"tsv:{paths[0]}")


def _read_parallel(paths: Sequence[Path]) -> Split:
    return read_split(f"parallel:{paths[0]},{paths[1]}")


def _read_pronunciations(paths: Sequence[Path]) -> Split:
    split = _read_pairs(paths)
    references = [targets[0].split(" ; ") for targets in split.references]
    return replace(split, references=references)


@dataclass(frozen=True)
class _Corpus:
    folder: str  # below each of `data_folders`, or absolute
    files: Mapping[str, tuple[str, ...]]  # of each split
    read: Callable[[Sequence[Path]], Split]


def _phrasebook(language: str) -> _Corpus:
    files = {split: (f"en-{language}.{split}.tsv.gz",) for split in ("train", "dev", "test")}
    return _Corpus(str(Path(__file__).with_name("phrasebook")), files, read_linked)


def _tatoeba(language: str) -> _Corpus:
    files = {split: (f"{split}.tsv.gz",) for split in ("train", "dev", "test")}
    return _Corpus(f"tatoeba-en-{language}", files, _read_pairs)


def _multi30k(language: str) -> _Corpus:
    stems = {
        "train": "train",
        "dev": "val",
        "test": "test_2016_flickr",
        "test2017": "test_2017_flickr",
    }
    files = {split: (f"{stem}.en.gz", f"{stem}.{language}.gz") for split, stem in stems.items()}
    return _Corpus("multi30k", files, _read_parallel)


def _cmudict(folder: str, stem: str) -> _Corpus:
    files = {split: (f"{stem}.{split}.tsv.gz",) for split in ("train", "dev", "test")}
    return _Corpus(folder, files, _read_pronunciations)


def _sigmorphon(prefix: str) -> _Corpus:
    files = {split: (f"{prefix}_{split}.tsv",) for split in ("train", "dev", "test")}
    return _Corpus("g2p-sigmorphon2021", files, _read_pairs)


_TALES = (
    ("BlueBeard", "LaBarbeBleue"),
    ("MasterCat", "ChatBotte"),
    ("TheInn", "LAuberge"),
    ("TheLastLesson", "LaDerniereClasse"),
    ("TheVision", "LaVision"),
)
_MIXED_CHINESE = "tatoeba-en-zh"
_CORPORA = {
    **{f"phrasebook-en-{language}": _phrasebook(language) for language in ("fr", "zh")},
    **{f"tatoeba-en-{language}": _tatoeba(language) for language in ("fr", "de", "es", "zh")},
    **{f"multi30k-en-{language}": _multi30k(language) for language in ("de", "fr")},
    "cmudict": _cmudict("g2p-cmudict", "cmudict_nostress"),
    "cmudict-stress": _cmudict("g2p-cmudict-stress", "cmudict_stress"),
    **{
        sigmorphon.corpus_name(language): _sigmorphon(language)
        for languages in sigmorphon.LANGUAGES.values()
        for language in languages
    },
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
        read_alibi,
    ),
}
NAMES = tuple(_CORPORA)
