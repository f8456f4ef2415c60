"""The texts of a run: a named corpus, files, or a prepared corpus, and their splits.

A named corpus has splits. Files have no splits: a share of their sources is held out for dev, and
on request for test. Dev or test can be another file instead. Pairs of extra data are left out if
dev or test contains their source.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from training.command.progress import print_choice, print_note
from training.command.visible import visible
from training.config.schema import Config
from training.data.read._files import Block, read_blocks
from training.data.read._manifest import Manifest, prepared_files, prepared_texts, read_manifest
from training.data.read._pairs import LineCounts, TrainingSource, parse, read_split, survey
from training.data.read._sentences import Split, in_target_script, merge_sources, sample
from training.data.read._specs import PREPARED, SPECS, CorpusError, Spec, unknown
from training.data.read._splits import HELD_OUT, Shares, SurveyedTexts, dev_share, split_of, too_few
from training.data.read.named import _corpora as corpora
from training.data.read.named._corpora import NAMES

_MOST_SHOWN = 32  # letters of a text in a message
_last_survey: dict[tuple, TrainingSource] = {}  # by SPEC, sizes and times of its files


class Texts(NamedTuple):
    """The SPECs of a run's texts."""

    data: Spec
    dev: Spec | float | None = None  # or the share of `data` to hold out; likewise for `test`
    test: Spec | float | None = None
    extra: tuple[Spec, ...] = ()
    limit: int = 0  # training pairs of a named corpus; 0 for all
    seed: int = 0  # seed of their draw

    @classmethod
    def of(cls, config: Config) -> Texts:
        """Return the texts of a configuration.

        Raises CorpusError if dev or test is a number outside (0, 1), or a share of data that has
        splits.
        """
        data = Spec.of(config.data)
        dev, test = (_spec_or_share(data, name, getattr(config, name)) for name in HELD_OUT)
        extra = tuple(map(Spec.of, config.extra_data.split()))
        return cls(data, dev, test, extra, config.train_limit, config.seed)

    def spec_of(self, name: str) -> Spec | None:
        """Return the SPEC with a split; None if the split is a share of the data's files."""
        other = {"dev": self.dev, "test": self.test}.get(name)
        if isinstance(other, Spec):
            return other
        return None if self.data.is_file else self.data

    def learned(self) -> list[Spec]:
        """Return the SPECs of training lines; none for a prepared

        Raises CorpusError if a prepared corpus is combined with extra data.
        """
        for spec in self.extra:
            if PREPARED in (spec.form, self.data.form):
                raise CorpusError(
                    f"extra_data needs texts, as --data has, but {spec} is something else"
                )
        return [] if self.data.form == PREPARED else [*dict.fromkeys([self.data, *self.extra])]

    def stamped(self, before: Manifest | None = None) -> tuple[str, dict[str, list[int]]]:
        """Return the SHA-256 of the files of data and dev, and the size and time of each file.

        If all sizes and times are the same as in `before`, the digest of `before` is returned, and
        no file is read. Raises CorpusError if a file is missing.
        """
        specs = self.learned() or [self.data]
        files = [file for spec in specs for file in files_of_training(spec)]
        files += self.dev.paths if isinstance(self.dev, Spec) else ()
        digest = hashlib.sha256()
        try:
            stats = {str(file): file.stat() for file in files}
            stamps = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
            if before is not None and before.files == stamps:
                return before.digest, stamps
            for path in files:
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise CorpusError(f"Cannot read {error.filename}: {error.strerror}") from None
        return digest.hexdigest(), stamps


def _spec_or_share(data: Spec, name: str, setting: str) -> Spec | float | None:
    """Return the SPEC of dev or test, or the share to hold out; None if the setting is empty."""
    try:
        share = float(setting)
    except ValueError:
        return Spec.of(setting) if setting else None
    if not data.is_file:
        raise CorpusError(
            f"{data} has its own {name} set, so --{name} {setting} cannot set lines aside. "
            f"Remove --{name}, or give data: --{name} tsv:FILE"
        )
    if not 0 < share < 1:
        raise CorpusError(
            f"--{name} needs a share between 0 and 1, such as 0.05, or data, such as "
            f"tsv:{name}.tsv. You gave: {setting}"
        )
    return share


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
    if spec.form == PREPARED:
        loaded = prepared_texts(spec.paths[0], split)
    elif spec.is_text:
        blocks = read_blocks(spec)
        loaded = read_split(spec, blocks)
    elif spec.text not in NAMES:
        raise unknown("corpus", spec.text, ", ".join(SPECS), NAMES)
    else:
        loaded = corpora.load(spec.text, split)
    loaded = in_target_script(loaded, spec.text, script_of)
    if split != "train":
        loaded = merge_sources(loaded)
    return sample(loaded, limit, seed)


def survey_training(spec: Spec, limit: int = 0, seed: int = 0) -> TrainingSource:
    """Return the training lines of a SPEC, surveyed.

    A named corpus is read once, and `limit` pairs are drawn; 0 for all. Files ignore `limit`. Their
    survey is cached for the last SPEC until a file changes.
    """
    stats = [file.stat() for file in spec.paths if file.exists()]
    key = spec, *((stat.st_size, stat.st_mtime_ns) for stat in stats)
    if key in _last_survey:
        return _last_survey[key]
    blocks: Callable[[], Iterable[Block]] = functools.partial(read_blocks, spec)
    if not spec.is_text:
        loaded = load(spec, "train", limit=limit or None, seed=seed)
        block = Block(Spec(spec.text, "multiref"), 1, loaded.lines())
        blocks = lambda: [block]  # noqa: E731
    surveyed = survey(spec, blocks)
    if spec.is_text:
        _last_survey.clear()
        _last_survey[key] = surveyed
    return surveyed


def sample_pairs(spec: str | Spec) -> tuple[int, list[tuple[str, str]]]:
    """Return how many training pairs a SPEC has, and the pairs in a sample of its lines.

    Files of up to 20 MB are read to the last line. For larger files, the number of pairs is
    estimated. Raises CorpusError as `load` does.
    """
    spec = Spec.of(spec)
    if not spec.is_text:
        pairs = load(spec, "train").pairs()
        return len(pairs), pairs
    surveyed = survey_training(Spec.of(spec.absolute()))
    count, drawn = surveyed.lines, surveyed.sample
    pairs = parse(drawn, counts := LineCounts(spec)).pairs()
    if drawn.lines == count:
        counts.check()
    return round(len(pairs) * count / drawn.lines), pairs


def files_of_training(spec: Spec) -> list[Path]:
    """Return the files of a SPEC; for a named corpus, the files of train and dev."""
    if spec.form == PREPARED:
        return prepared_files(spec.paths[0])
    if spec.text not in NAMES:
        return list(spec.paths)
    files = corpora.split_files(spec.text)
    return [file for split in ("train", "dev") for file in files.get(split, ())]


def manifest_of(spec: str | Spec) -> Manifest | None:
    """Return the manifest of the prepared corpus that a SPEC names; None for any other SPEC."""
    spec = Spec.of(spec)
    return read_manifest(spec.paths[0]) if spec.form == PREPARED else None


def load_split(texts: Texts, name: str, limit: int | None = None) -> tuple[Split, dict[str, str]]:
    """Return a split of a run's texts: all of it, or a random sample of `limit` sentences.

    Also return a dictionary: `data` is the SPEC that was read, and `split` its split, "all" for a
    file that is read whole. Raises CorpusError if the split does not exist or cannot be read.
    """
    data = texts.data
    if spec := texts.spec_of(name):
        loaded = load(spec, name, limit=limit, script_of=data.text)
        return loaded, {"data": spec.text, "split": "all" if spec.is_file else name}
    check_split(texts, name)
    shares = held_out(texts, 0 if texts.dev else survey_training(data).lines)
    every = load(data, "train")
    splits = [split_of(source, shares) for source in every.sources]
    part = every.select([i for i, split in enumerate(splits) if split == name])
    if not part.sources:
        raise too_few(data, name)
    if name != "train":
        part = merge_sources(dataclasses.replace(part, unusable=0))  # counted once, for train
    return sample(part, limit), {"data": data.text, "split": name}


def check_split(texts: Texts, name: str) -> None:
    """Raise a CorpusError if a run on files does not have this split."""
    there = ["train", "dev", *(["test"] if texts.test else [])]
    if texts.data.is_file and name not in there:
        later = ". For the next run, train with --test 0.05" if name == "test" else ""
        raise CorpusError(
            f"This run has no split {name!r}, only {', '.join(there)}. Score dev: --split dev. "
            f"Score a file: --data tsv:FILE{later}"
        )


def held_out(texts: Texts, lines: int) -> Shares:
    """Return the shares of the sources, in `lines` lines, that are held out for dev and test."""
    dev, test = (each if isinstance(each, float) else 0.0 for each in (texts.dev, texts.test))
    if texts.dev is None and texts.data.is_file:
        dev = dev_share(lines)
    if dev + test >= 1:
        raise CorpusError(
            f"--dev and --test need shares below 1 in total, but they are {dev} and {test}"
        )
    return dev, test


def read_texts(texts: Texts) -> SurveyedTexts:
    """Survey each SPEC with training pairs, print its notes, and read dev and test.

    Raises CorpusError if a SPEC cannot be read or has no pair.
    """
    data = texts.data
    sources: list[TrainingSource] = []
    for spec in texts.learned():
        limit = texts.limit if spec == data else 0
        sources.append(source := survey_training(spec, limit, texts.seed))
        for note in source.notes:
            print_note(note)
        if spec.is_text and len(sources) == 1:
            first, second = (visible(text, _MOST_SHOWN) for text in source.pair)
            print_choice("first pair", f"{first} → {second}")
    shares = held_out(texts, sources[0].lines if sources else 0)
    measured = {}
    for name in HELD_OUT if texts.test or texts.extra else ("dev",):
        if other := texts.spec_of(name):
            optional = name == "test" and not texts.test  # a corpus may have no test split
            with suppress(CorpusError) if optional else nullcontext():
                measured[name] = load(other, name, script_of=data.text)
    has_test = bool(texts.test)
    return SurveyedTexts(data, sources, shares, has_test, measured, *texts.stamped())
