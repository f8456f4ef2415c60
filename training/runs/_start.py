"""Starts or resumes a run: reads the data, makes their readers, and writes the run's files."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np

from training._metric_choice import fitting_metric, misfit
from training.command.errors import ConfigError, RunError, UserError
from training.command.files import move, sync, write_json
from training.command.progress import stages
from training.config.schema import Config
from training.data import _corpus as corpus
from training.data._batches import Batches, read_batches
from training.data._encoding import Tokenizing, check_texts, train_state
from training.data._pair_files import Split
from training.data._plan import Batching
from training.data._prepared import Prepared
from training.data._token_ids import tokenize
from training.data._tokens import write_tokens
from training.data.splits import Texts
from training.data.store import Sequences
from training.data.tokenizers import ALPHABETS, Tokenizer, tokenizer_of
from training.model.seq2seq import build_model, check_attention
from training.presets._recognise import recognise
from training.runs._choices import fitting_bound, print_choices
from training.runs._origin import Origin, check_corpus, write_origin
from training.runs.checkpoints import save_checkpoint
from training.runs.files import SIDES, RunFiles
from training.runs.run import load_sides
from training.sources._source import Source
from training.sources.kinds import SOURCE_KINDS, source_class

Sides = tuple[Any, Any]  # the source; the tokenizer of a target text, or None
ENOUGH_TO_SCORE = 200  # with fewer dev sentences, epochs are compared by perplexity


@dataclass(frozen=True)
class Opened:
    """The data of a run, and its source and target tokenizer."""

    config: Config  # `_decided` has replaced its values "auto" in a new run
    source: Source  # reads the sources
    target: Tokenizer | None  # tokenizer of a target text; None for a label
    pairs: Batches  # batches to train with
    dev_pairs: Batches  # batches of the dev set
    dev: Any  # the dev set as it was loaded
    origin: Origin  # facts about the start of the run
    # numbers for the training sources of a new run, see `Source.digests`; None for texts
    learned: np.ndarray | None = None


def as_init_reads(config: Config, init: Path) -> Config:
    """Return the configuration with the vocabulary sizes of `init`, a run to start from.

    Raises ConfigError if the configuration asks for other kinds of tokenizers than `init` has, and
    RunError if the tokenizers of `init` cannot be read or differ from those of a prepared corpus.
    """
    source, target = load_sides(config, RunFiles(init))
    reader = getattr(source, "tokenizer", None)
    if reader is not None and reader.copies != config.copy:
        copies = str(reader.copies).lower()
        remedy = f"Add --set copy={copies}"
        raise ConfigError.expected("copy", f"{copies}, as {init} has it", config.copy, remedy)
    if own := corpus.prepared(config.data):
        files = zip(RunFiles(init).tokenizers, own.tokenizers, strict=True)
        if any(theirs.read_bytes() != ours.read_bytes() for theirs, ours in files):
            hint = f"prepare the corpus with --tokenizers {init}"
            raise RunError(f"{init} and {config.data} have different tokenizers: {hint}")
        return config
    sizes: dict[str, Any] = {}
    for side, tokenizer in zip(SIDES, (reader, target), strict=True):
        if tokenizer is None:
            continue
        kind = getattr(config, f"{side}_tokenizer")
        if kind != tokenizer.kind:
            wanted = f"{tokenizer.kind}, as {init} has it"
            remedy = f"Add --set {side}_tokenizer={tokenizer.kind}"
            raise ConfigError.expected(f"{side}_tokenizer", wanted, kind, remedy)
        sizes[f"{side}_vocab_size"] = tokenizer.vocab_size
    return replace(config, **sizes)


def open_run(files: RunFiles, config: Config, init: Path | None = None) -> Opened:
    """Read the data of a new run, and make or load its source and target tokenizer.

    Token ids are written to `files.streamed`.

    Args:
        files: the files of the run.
        config: the configuration of the run.
        init: a run to start from, see `as_init_reads`; its tokenizers are used instead of new ones.

    Raises UserError if the data cannot be read or do not fit the configuration.
    """
    data: Any
    if SOURCE_KINDS[config.source].tokens:
        if own := corpus.prepared(config.data):
            for key, value in own.manifest.settings.items():
                if (received := getattr(config, key)) != value:
                    wanted = f"{value}, as {config.data} has it"
                    raise ConfigError.expected(key, wanted, received, f"Add --set {key}={value}")
            if config.copy:
                raise ConfigError(f"copy needs texts, but {config.data} has token ids")
        data = write_tokens(files.streamed, Texts.of(config), Tokenizing.of(config), init)
        sides = load_sides(config, RunFiles(data.path))
    else:
        reader = source_class(config.source)
        begun = None if init is None else load_sides(config, RunFiles(init))
        data = reader.load_training(config, begun and begun[0])
        if begun and begun[1] is not None:
            for name, split in zip((config.data, "dev"), data, strict=True):
                check_texts(name, [text for _, text in split.pairs()], begun[1])
        sides = begun or (reader.make(config, data[0]), _train_tokenizer(config, data[0]))
    opened = _open(config, data, sides, init)
    if not isinstance(data, Prepared):
        opened = replace(opened, learned=opened.source.digests(data[0]))
    if opened.target is not None:
        opened = _decided(opened)
    print_choices(opened.config, opened.source, opened.target, opened.origin, chosen=init is None)
    warn_of_metric(opened)
    return opened


def preview(config: Config, init: Path | None = None) -> None:
    """Print the choices for the data without leaving a file; raises as `open_run`."""
    with TemporaryDirectory() as folder:
        if init is not None:
            config = as_init_reads(config, init)
        check_attention(config)
        shapes = open_run(RunFiles(Path(folder)), config, init).pairs.shapes_line()
    if shapes:
        print(shapes)


def _train_tokenizer(config: Config, data: Any) -> Tokenizer | None:
    """Train the target's tokenizer of a source that is not a text; return None for labels."""
    if config.target == "label":
        return None
    lines = [text for references in data.references for text in references]
    kind, size = config.target_tokenizer, config.target_vocab_size
    with stages("training the tokenizer of the target side"):
        return tokenizer_of(train_state("target", kind, size, lines))


def reopen(files: RunFiles, config: Config, force: bool = False) -> Opened:
    """Read the data of a run to resume; sentences that differ from its start need `force`."""
    sides = load_sides(config, files)
    if not SOURCE_KINDS[config.source].tokens:
        opened = _open(config, sides[0].load_training(config, sides[0]), sides)
        check_corpus(files, config.data, opened.origin.corpus, force)
        return opened
    tokens = None
    with suppress(UserError):  # damaged or missing token ids are written again
        tokens = Prepared(files.tokens)
    texts = Texts.of(config)
    digest, _ = texts.stamped(tokens.manifest if tokens else None)
    check_corpus(files, config.data, digest, force)
    if tokens is None or tokens.manifest.digest != digest:
        write_tokens(files.streamed, texts, Tokenizing.of(config), files.path)
        tokens = Prepared(_move_tokens(files))
    return _open(config, tokens, sides)


def _decided(opened: Opened) -> Opened:
    """Return a run with the values "auto" of `metric`, `keep_epoch` and `max_answer` decided.

    With few dev sentences, epochs are kept by perplexity, because BLEU is mostly chance: with 47
    sentences it kept an epoch with a perplexity of 36 instead of an epoch with 25.
    """
    config, dev = opened.config, opened.dev
    if config.metric == "auto":
        config = replace(config, metric=fitting_metric(dev.references))
    if config.keep_epoch == "auto":
        translated = min(len(dev.sources), config.max_dev_translations or len(dev.sources))
        by = "best_score" if translated >= ENOUGH_TO_SCORE else "best_perplexity"
        config = replace(config, keep_epoch=by)
    if SOURCE_KINDS[config.source].tokens and config.max_answer == "auto":
        spelled = config.source_tokenizer in ALPHABETS
        config = replace(config, max_answer=fitting_bound(*opened.pairs.lengths(), spelled))
    return replace(opened, config=config)


def scored_part(dev: Split, config: Config) -> Split:
    """Return the dev sentences that each epoch translates: `max_dev_translations`, or all."""
    count = len(dev.sources)
    limit = min(config.max_dev_translations or count, count)
    return dev.select(sorted(np.random.default_rng(0).permutation(count)[:limit]))


def warn_of_metric(opened: Opened) -> None:
    """Print a warning if the metric gives the dev targets themselves less than its best figure."""
    if opened.target is None:
        return
    metric, references = opened.config.metric, scored_part(opened.dev, opened.config).references
    if reason := misfit(metric, references):
        other = fitting_metric(references)
        print(
            f"Warning: metric={metric} does not fit the dev targets: {reason}. A new run can "
            f"have another: --set metric={other}",
            flush=True,
        )


def prepare_run(config: Config, output: Path) -> dict[str, int]:
    """Prepare a run of texts for training; return the number of pairs of `train` and `dev`.

    `train` includes the pairs that training leaves out as too long or empty. A prepared corpus is
    not copied.
    """
    files = RunFiles(output)
    with files.locked():
        files.check_free()
        check_attention(config)  # first, because reading the data takes long
        opened = open_run(files, config)
        build_model(config, *opened.origin.vocabulary)  # fails now, not when training starts
        write_run(files, opened)
    pairs, dev_pairs = opened.pairs.statistics, opened.dev_pairs.statistics
    return {"train": pairs.pairs + pairs.dropped, "dev": dev_pairs.pairs}


def write_run(files: RunFiles, opened: Opened, model: keras.Model | None = None) -> None:
    """Write the files of a new run; the configuration, which makes it a run, comes last."""
    try:
        files.config.unlink(missing_ok=True)  # left by a run without a finished epoch
        shutil.rmtree(files.checkpoints, ignore_errors=True)
        opened.source.save(files.path)
        if opened.target is not None:
            opened.target.save(files.tokenizers[1])
        files.write_digests()
        if opened.learned is not None:
            np.save(files.learned, opened.learned)
        if SOURCE_KINDS[opened.config.source].tokens:
            _move_tokens(files)
        write_origin(files, opened.origin)
        write_json(files.history, [])
        if model is not None:
            save_checkpoint(files, model, [])
        for file in files.all_sides():
            sync(file)
        opened.config.save(files.config)
    except OSError as error:
        raise RunError(f"cannot write to {files.path}: {error.strerror}") from error


def _move_tokens(files: RunFiles) -> Path:
    """Move the token ids from `files.streamed` to their place in the run; return the place."""
    shutil.rmtree(files.tokens, ignore_errors=True)
    return move(files.streamed, files.tokens)


def _open(config: Config, data: Any, sides: Sides, init: Path | None = None) -> Opened:
    """Return the opened data: batches of the prepared token ids, or of the loaded examples."""
    source, target = sides
    if isinstance(data, Prepared):
        pairs, dev_pairs = read_batches(data.path, Texts.of(config), Batching.of(config))
        dev, digest = data.texts("dev"), data.manifest.digest
        unusable = data.manifest.unusable + dev.unusable
    else:
        train, dev = data
        pairs = _batches(config, train, source, target, training=True)
        dev_pairs = _batches(config, dev, source, target, training=False)
        digest = source_class(config.source).fingerprint(train, dev)
        unusable = getattr(train, "unusable", 0) + getattr(dev, "unusable", 0)
    counts = pairs.statistics
    spelling: dict[str, Any] = {}
    # windows need outputs in the order of letters
    ordered = "hard_monotonic" in (config.attention, config.other_attention)
    spells = config.source_tokenizer in ALPHABETS and isinstance(data, Prepared)
    traits = None if ordered or not spells else recognise(list(dev.pairs()))
    if spells and (traits is None or traits.reordered is None or traits.follows):
        spelling = _lengths_of_words(pairs, source.tokenizer.tag(config.max_source_length))
    origin = Origin(
        data=config.data,
        corpus=digest,
        train=counts.pairs,
        dropped=counts.dropped,
        unusable=unusable,
        dev=dev_pairs.statistics.pairs if target is None else len(dev.sources),
        target_tokens=counts.target_tokens,
        vocabulary=(source.size, target.vocab_size if target else 0),
        init=None if init is None else str(init.absolute()),
        **spelling,
    )
    return Opened(config, source, target, pairs, dev_pairs, dev, origin)


def _lengths_of_words(pairs: Batches, tag: dict[str, int]) -> dict[str, Any]:
    """Return `longest`, `fewest` and `tag` of an `Origin`."""
    tags = pairs.tag_lengths(tag)
    letters, said = pairs.lengths()
    letters = letters - tags
    return {
        "longest": int(np.quantile(letters, 0.99, method="lower")),
        "fewest": float(np.quantile(said / letters, 0.002)),
        "tag": int(tags.max()),
    }


def _batches(
    config: Config, split: Any, source: Source, target: Tokenizer | None, *, training: bool
) -> Batches:
    """Return the batches of a split of images or histories, as the source loads it."""
    labels: Sequences | np.ndarray
    if target is None:
        rows, labels = source.rows(split, training), np.asarray(split.labels, np.float32)
    else:
        examples, texts = map(list, zip(*split.pairs(), strict=True))
        rows, labels = source.rows(examples, training), tokenize(texts, target)
    return Batches(Batching.of(config), rows, labels, training=training)
