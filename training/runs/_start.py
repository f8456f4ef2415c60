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
from training.config.schema import Config
from training.data.batches._batches import Batches, make_batches
from training.data.batches._plan import Batching, Statistics
from training.data.read._sentences import Split
from training.data.read._specs import PREPARED, Spec
from training.data.read.texts import Texts, read_texts
from training.data.tokens._encoding import Tokenizing, write_tokens
from training.data.tokens._prepared import Prepared
from training.data.tokens._token_ids import tokenize
from training.data.tokens._vocabularies import check_texts, train_tokenizer
from training.data.tokens.store import Sequences
from training.data.tokens.tokenizers import ALPHABETS, Tokenizer
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


def _as_init_reads(config: Config, init: Path) -> tuple[Config, Sides]:
    """Return the configuration with the vocabulary sizes of `init`, a run, and the run's sides.

    Raises ConfigError if the configuration asks for other kinds of tokenizers than `init` has, and
    RunError if the tokenizers of `init` cannot be read.
    """
    source, target = load_sides(config, RunFiles(init))
    reader = getattr(source, "tokenizer", None)
    if reader is not None and reader.copies != config.copy:
        copies = str(reader.copies).lower()
        remedy = f"Add --set copy={copies}"
        raise ConfigError.expected("copy", f"{copies}, as {init} has it", config.copy, remedy)
    if Spec.of(config.data).form == PREPARED:
        # `write_tokens` compares the tokenizers with those of the corpus
        return config, (source, target)
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
    return replace(config, **sizes), (source, target)


def open_run(files: RunFiles, config: Config, init: Path | None = None) -> Opened:
    """Read the data of a new run, and make or load its source and target tokenizer.

    Token ids are written to `files.streamed`.

    Args:
        files: the files of the run.
        config: the configuration of the run.
        init: a run to start from; its tokenizers are used instead of new ones.

    Raises UserError if the data cannot be read or do not fit the configuration.
    """
    begun = None
    if init is not None:
        config, begun = _as_init_reads(config, init)
    if SOURCE_KINDS[config.source].tokens:
        texts = Texts.of(config)
        surveyed = read_texts(texts)
        tokens = write_tokens(files.streamed, surveyed, Tokenizing.of(config), init)
        pairs, dev_pairs = make_batches(tokens, texts, Batching.of(config))
        sides = load_sides(config, RunFiles(tokens.path))
        opened = _of_texts(config, sides, tokens, pairs, dev_pairs, init)
    else:
        opened = _open_examples(config, begun, init)
    if opened.target is not None:
        opened = _decided(opened)
    print_choices(opened.config, opened.source, opened.target, opened.origin, chosen=init is None)
    warn_of_metric(opened)
    return opened


def preview(config: Config, init: Path | None = None) -> None:
    """Print the choices for the data without leaving a file; raises as `open_run`."""
    with TemporaryDirectory() as folder:
        check_attention(config)
        shapes = open_run(RunFiles(Path(folder)), config, init).pairs.shapes_line()
    if shapes:
        print(shapes)


def reopen(files: RunFiles, config: Config, force: bool = False) -> Opened:
    """Read the data of a run to resume; sentences that differ from its start need `force`."""
    sides = load_sides(config, files)
    if not SOURCE_KINDS[config.source].tokens:
        opened = _of_examples(config, sides, sides[0].load_training(config, sides[0]))
        check_corpus(files, config.data, opened.origin.corpus, force)
        return opened
    tokens = None
    with suppress(UserError):  # damaged or missing token ids are written again
        tokens = Prepared(files.tokens)
    texts = Texts.of(config)
    digest, _ = texts.stamped(tokens.manifest if tokens else None)
    check_corpus(files, config.data, digest, force)
    if tokens is None or tokens.manifest.digest != digest:
        write_tokens(files.streamed, read_texts(texts), Tokenizing.of(config), files.path)
        _move_tokens(files)
    tokens = Prepared(files.tokens, texts.data)
    return _of_texts(config, sides, tokens, *make_batches(tokens, texts, Batching.of(config)))


def _of_texts(
    config: Config,
    sides: Sides,
    tokens: Prepared,
    pairs: Batches,
    dev_pairs: Batches,
    init: Path | None = None,
) -> Opened:
    """Return the data of a run of texts, opened."""
    dev = tokens.texts("dev")
    unusable = tokens.manifest.unusable + dev.unusable
    digest, size = tokens.manifest.digest, len(dev.sources)
    origin = _origin(config, digest, sides, pairs.statistics, size, unusable, init)
    # windows need outputs in the order of letters
    ordered = "hard_monotonic" in (config.attention, config.other_attention)
    spells = config.source_tokenizer in ALPHABETS
    traits = None if ordered or not spells else recognise(list(dev.pairs()))
    if spells and (traits is None or traits.reordered is None or traits.follows):
        words = _lengths_of_words(pairs, sides[0].tokenizer.tag(config.max_source_length))
        origin = replace(origin, **words)
    return Opened(config, *sides, pairs, dev_pairs, dev, origin)


def _lengths_of_words(pairs: Batches, tag: dict[str, int]) -> dict[str, Any]:
    """Return `longest`, `fewest` and `tag` of an `Origin`."""
    tags = pairs.tag_lengths(tag)
    letters, outputs = pairs.lengths()
    letters = letters - tags
    return {
        "longest": int(np.quantile(letters, 0.99, method="lower")),
        "fewest": float(np.quantile(outputs / letters, 0.002)),
        "tag": int(tags.max()),
    }


def _open_examples(config: Config, begun: Sides | None, init: Path | None) -> Opened:
    """Read the images or histories of a new run; return the run, opened.

    `begun` has the sides of `init`, a run to start from.
    """
    reader = source_class(config.source)
    train, dev = reader.load_training(config, begun and begun[0])
    if begun is not None:
        sides = begun
        if sides[1] is not None:
            for name, split in ((config.data, train), ("dev", dev)):
                check_texts(name, [text for _, text in split.pairs()], sides[1])
    elif config.target == "label":
        sides = reader.make(config, train), None
    else:
        source = reader.make(config, train)
        lines = [text for references in train.references for text in references]
        kind, size = config.target_tokenizer, config.target_vocab_size
        sides = source, train_tokenizer("target", kind, size, lines)
    opened = _of_examples(config, sides, (train, dev), init)
    return replace(opened, learned=opened.source.digests(train))


def _of_examples(
    config: Config, sides: Sides, data: tuple[Any, Any], init: Path | None = None
) -> Opened:
    """Return a run of images or histories, opened from its training and its dev set."""
    source, target = sides
    batching, made = Batching.of(config), list[Batches]()
    for split, training in zip(data, (True, False), strict=True):
        labels: Sequences | np.ndarray
        if target is None:
            rows, labels = source.rows(split, training), np.asarray(split.labels, np.float32)
        else:
            examples, texts = map(list, zip(*split.pairs(), strict=True))
            rows, labels = source.rows(examples, training), tokenize(texts, target)
        made.append(Batches(batching, rows, labels, training=training))
    pairs, dev_pairs = made
    train, dev = data
    unusable = getattr(train, "unusable", 0) + getattr(dev, "unusable", 0)
    digest = source.fingerprint(train, dev)
    size = dev_pairs.statistics.pairs if target is None else len(dev.sources)
    origin = _origin(config, digest, sides, pairs.statistics, size, unusable, init)
    return Opened(config, source, target, pairs, dev_pairs, dev, origin)


def _origin(
    config: Config,
    digest: str,
    sides: Sides,
    counts: Statistics,
    dev: int,
    unusable: int,
    init: Path | None,
) -> Origin:
    """Return the origin of a run; `dev` is the size of its dev set."""
    source, target = sides
    return Origin(
        data=config.data,
        corpus=digest,
        train=counts.pairs,
        dropped=counts.dropped,
        unusable=unusable,
        dev=dev,
        target_tokens=counts.target_tokens,
        vocabulary=(source.size, target.vocab_size if target else 0),
        init=None if init is None else str(init.absolute()),
    )


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


def _move_tokens(files: RunFiles) -> None:
    """Move the token ids from `files.streamed` to their place in the run."""
    shutil.rmtree(files.tokens, ignore_errors=True)
    move(files.streamed, files.tokens)
