"""The texts that a SPEC names: a named corpus, files, or a prepared corpus."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from training.data._lines import (
    Block,
    Skipped,
    Survey,
    parse,
    read_blocks,
    read_split,
    survey,
    text_block,
)
from training.data._pair_files import Split, merge_sources, sample
from training.data._specs import PREPARED, SPECS, Spec, unknown
from training.data.named import _corpora as corpora
from training.data.named._corpora import NAMES

Blocks = Callable[[], Iterable[Block]]


def load(
    spec: str | Spec, split: str, *, limit: int | None = None, seed: int = 0, script_of: str = ""
) -> Split:
    """Return one split of a corpus: `train`, `dev`, `test`, or another split of the corpus.

    In every split but `train`, lines with the same source become one sentence with several
    references.

    Args:
        spec: the corpus.
        split: name of the split.
        limit: if the split has more sentences, a random sample of this size is returned.
        seed: of the sample.
        script_of: another corpus. References are written in the script of its targets.

    Raises CorpusError if the corpus or the split does not exist, or a file cannot be read.
    """
    spec = Spec.of(spec)
    if own := prepared(spec):
        loaded = own.texts(split)
    elif spec.is_text:
        loaded = read_split(spec)
    elif spec.text in NAMES:
        loaded = corpora.load(spec.text, split)
    else:
        raise unknown("corpus", spec.text, ", ".join(SPECS), NAMES)
    loaded = corpora.in_target_script(script_of, loaded)
    if split != "train":
        loaded = merge_sources(loaded)
    return sample(loaded, limit, seed)


def blocks_of(spec: Spec, limit: int = 0, seed: int = 0) -> Blocks:
    """Return a function that yields the training lines of a SPEC.

    A named corpus is read once, and `limit` pairs are drawn; 0 for all. Files ignore `limit`.
    """
    if spec.is_text:
        return functools.partial(read_blocks, spec)
    block = text_block(spec.text, load(spec, "train", limit=limit or None, seed=seed))
    return lambda: [block]


def sample_pairs(spec: str | Spec) -> tuple[int, list[tuple[str, str]]]:
    """Return how many training pairs a SPEC has, and the pairs in a sample of its lines.

    Files of up to 20 MB are read to the last line. For larger files, the number of pairs is
    estimated. Raises CorpusError as `load` does.
    """
    spec = Spec.of(spec)
    if not spec.is_text:
        pairs = load(spec, "train").pairs()
        return len(pairs), pairs
    count, drawn, *_ = survey_files(Spec.of(spec.absolute()))
    pairs = parse(drawn, skipped := Skipped()).pairs()
    if drawn.lines == count:
        skipped.check(spec)
    return round(len(pairs) * count / drawn.lines), pairs


def survey_files(spec: Spec) -> Survey:
    """Return the survey of files, cached for the last SPEC until a file changes; see `survey`."""
    stats = [file.stat() for file in spec.paths if file.exists()]
    return _survey_files(spec, *((stat.st_size, stat.st_mtime_ns) for stat in stats))


@functools.lru_cache(1)
def _survey_files(spec: Spec, *_: tuple[int, int]) -> Survey:
    return survey(spec, read_blocks(spec))


def files_of_training(spec: Spec) -> list[Path]:
    """Return the files of a SPEC; for a named corpus, the files of train and dev."""
    if own := prepared(spec):
        return own.files
    if spec.text not in NAMES:
        return list(spec.paths)
    files = corpora.split_files(spec.text)
    return [file for split in ("train", "dev") for file in files.get(split, ())]


def prepared(spec: str | Spec) -> Any:
    """Return the `Prepared` corpus that a SPEC names; None for any other SPEC."""
    spec = Spec.of(spec)
    if spec.form != PREPARED:
        return None
    from training.data._prepared import Prepared  # imports NumPy: late, so that --help is fast

    return Prepared(spec.paths[0])
