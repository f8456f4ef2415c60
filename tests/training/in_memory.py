"""A run's texts as lists in memory: what the way through the disk is held to."""

import contextlib

from training.data import corpus
from training.data.pair_files import CorpusError, Split, sample
from training.data.splits import held_out, load_split, place
from training.data.tokenizing import make_tokenizer
from training.sources.batches import make_batches
from training.sources.text.copying import hide_names
from training.sources.text.source import TextSource


def load_training(config):
    """Return the training set and the dev set."""
    dev, _ = load_split(config, "dev")
    limit = config.train_limit or None
    train = corpus.load(config.data, "train", limit=limit, seed=config.seed)
    if corpus.is_file(config.data):
        train = corpus.load(config.data, "train")
        first, last = held_out(config)
        within = [i for i, text in enumerate(train.sources) if first <= place(text) < 1 - last]
        train = sample(train.select(within), limit, config.seed)
    measured = set(dev.sources)
    with contextlib.suppress(CorpusError):
        measured.update(load_split(config, "test")[0].sources)
    sources, references = list(train.sources), list(train.references)
    for spec in config.extra_data.split():
        extra = corpus.written_like(config.data, corpus.load(spec, "train"))
        for source, targets in zip(extra.sources, extra.references, strict=True):
            if source not in measured:
                sources.append(source)
                references.append(targets)
    return Split(sources, references), dev


def make_sides(config, data):
    """Return the reader of the sources, and the tokenizer of the targets."""
    kinds = config.source_tokenizer, config.target_tokenizer
    sizes = config.source_vocab_size, config.target_vocab_size
    texts = zip(*data.pairs(), strict=True)
    source, target = map(make_tokenizer, ("source", "target"), kinds, sizes, texts)
    source.copies = config.copy
    return TextSource(source), target


def train_batches(config, data, sides):
    """The batches for training."""
    if config.copy:
        sources, targets = zip(*data.pairs(), strict=True)
        sources, targets = hide_names(sources, targets, config.copy_hidden, config.seed)
        data = Split(sources, [[target] for target in targets])
    return make_batches(config, data, *sides, training=True)
