"""The keys of the configuration, each with its default, meaning and limits."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from training.command.errors import ConfigError
from training.metrics import OF_TEXTS

_LIMITS = (
    ("least", "at least", operator.ge),
    ("above", "more than", operator.gt),
    ("below", "less than", operator.lt),
)


def key(
    default: str | bool | float,
    meaning: str,
    *,
    choices: Iterable[object] = (),
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: int = 2**31 - 1,
    can_change: bool = False,
) -> Any:
    """Declare a key of the configuration. The type of the default is the type of the key.

    `least`, `above`, `below` and `most` limit a number. A whole number must be 1 or more unless
    `least` is given. `choices` lists the allowed values. `can_change` allows a change of the key
    in a run that has begun.
    """
    if isinstance(default, int) and not isinstance(default, bool) and least is None:
        least = 1
    limits = {"choices": tuple(choices), "least": least, "above": above, "below": below}
    metadata = {"meaning": meaning, "can_change": can_change, "most": most, **limits}
    return field(default=default, metadata=metadata)


changeable = partial(key, can_change=True)  # a key that can change in a run that has begun


def check(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Raise a one-line ConfigError, which names the key, if the key cannot have this value."""
    choices = metadata.get("choices", ())
    if choices and value not in choices:
        shown = (str(x).lower() if isinstance(x, bool) else str(x) or '""' for x in choices)
        allowed = ", ".join(shown)
        raise ConfigError.expected(name, f"one of {allowed}", value)
    if isinstance(value, str) and not is_unicode(value):
        raise ConfigError.expected(name, "text in Unicode", ascii(value))
    if isinstance(value, str | bool):
        return
    if isinstance(value, int) and value > metadata["most"]:
        raise ConfigError.expected(name, f"at most {metadata['most']}", value)
    if not math.isfinite(value):
        raise ConfigError.expected(name, "a finite number", value)
    limits = [
        (f"{word} {metadata[limit]}", compare(value, metadata[limit]))
        for limit, word, compare in _LIMITS
        if metadata.get(limit) is not None
    ]
    if not all(holds for _, holds in limits):
        wanted = " and ".join(words for words, _ in limits)
        raise ConfigError.expected(name, wanted, value)


def is_unicode(text: str) -> bool:
    """Return whether a text is valid Unicode: a path of undecodable bytes has lone surrogates."""
    return text.encode(errors="ignore").decode() == text


# The names in `keras_attention.mechanisms`, which would import Keras, and the decoder's names.
ATTENTIONS = (
    *("none", "additive", "normalized_additive", "dot", "scaled_dot", "general", "location"),
    *("local_m", "local_p", "location_sensitive", "coverage", "monotonic", "chunkwise"),
    "hard_monotonic",
)
DISTRIBUTIONS = ("softmax", "sparsemax", "entmax15")  # the last two are sparse
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
TOKENIZERS = ("sentencepiece", "words", "characters", "letters", "symbols")
ORDERS = ("bahdanau", "luong")
# classes of keras.layers
CELLS = {"simple_rnn": "SimpleRNNCell", "gru": "GRUCell", "lstm": "LSTMCell"}


@dataclass(frozen=True)
class Shared:
    """Keys of all sources and targets, see `training.model` and `training.fit`."""

    data: str = key("phrasebook-en-fr", "training data: DATA, see --data")
    train_limit: int = key(0, "training pairs used; 0 for all", least=0)
    attention: str = key(
        "additive",
        "attention mechanism, see docs/mechanisms.md; hard_monotonic: one place for each token, in "
        "order; none: only the encoder's last state",
        choices=ATTENTIONS,
    )
    attention_units: int = key(512, "units of the attention's hidden layer, if it has one")
    distribution: str = key("softmax", "distribution of the weights", choices=DISTRIBUTIONS)
    dropout: float = changeable(0.2, "rate on embeddings, memory and readout", least=0, below=1)
    epochs: int = changeable(10, "passes over all training pairs")
    batch_size: int = key(64, "training pairs in a batch")
    learning_rate: float = changeable(1e-3, "highest learning rate of Adam", above=0)
    warmup_steps: int = changeable(200, "steps of a rising rate, before its cosine", least=0)
    clip_norm: float = changeable(1.0, "largest norm of the gradient of all weights", above=0)
    average_epochs: int = changeable(0, "last epochs whose mean is tried; 0 for none", least=0)
    precision: str = key("float32", "precision of matrix products", choices=PRECISIONS)
    jit_compile: bool | str = key(
        "auto",
        "compile the training step with XLA; auto: on a GPU, where it is several times faster",
        choices=("auto", True, False),
    )
    batch_shapes: int = key(
        0,
        "most shapes of training batches; XLA compiles the step for each; 0: any number, with XLA "
        "8, or on a GPU as many as are worth it",
        least=0,
    )
    seed: int = key(1, "seed of everything random", least=0, most=2**32 - 1)


@dataclass(frozen=True)
class Recurrent:
    """Keys of the encoder of a sequence, see `training.sources._source`."""

    encoder: str = key("gru", "recurrent cell of the encoder", choices=CELLS)
    bidirectional: bool = key(True, "read the source in both directions")
    encoder_layers: int = key(1, "recurrent layers of the encoder")
    encoder_units: int = key(256, "units of the encoder's cell, in each direction")


@dataclass(frozen=True)
class Text(Recurrent):
    """Keys of text sources, see `training.data` and `training.sources.text`."""

    dev: str = key(
        "",
        "dev set: DATA, or the share of the files' lines to set aside, such as 0.05; default: the "
        "corpus's dev split, or about 300 of the lines, 1,000 of many",
    )
    test: str = key("", "test set, as dev; default: the corpus's test split, or none")
    extra_data: str = key(
        "", "more training data: several DATA with spaces between; without sources of dev and test"
    )
    source_tokenizer: str = key("sentencepiece", "tokenizer of sources", choices=TOKENIZERS)
    source_vocab_size: int = key(8000, "largest source vocabulary")
    max_source_length: int = key(60, "longest source, in tokens; longer pairs are left out")
    max_answer: str = changeable(
        "auto",
        "longest answer, such as 2x+10: twice the source's tokens plus 10, or 1.25x+4; auto: what "
        "the training targets need, plus a margin",
    )
    other_attention: str = key(
        "",
        "attention that is tried against `attention` before the first epoch, for two epochs each; "
        "the better one is trained",
        choices=("", "additive", "hard_monotonic"),
    )
    concat_pairs: float = key(
        0.0, "share of batches of joined pairs, for longer texts", least=0, below=1
    )
    batch_tokens: int = key(0, "tokens of a batch's longer side, padded; 0 for batch_size", least=0)
    copy: bool = key(False, "copy unknown words from the source (pointer-generator)")
    copy_masking: float = key(
        0.0,
        "share of training pairs whose names and numbers are masked, to be copied",
        least=0,
        below=1,
    )


@dataclass(frozen=True)
class Image:
    """Keys of image sources, see `training.sources.image`."""

    image_height: int = key(64, "height to which images are resized, in pixels")
    image_width: int = key(256, "width to which images are resized, in pixels")
    image_channels: int = key(1, "channels: 1 for grey, 3 for colour", choices=(1, 3))
    convolutions: str = key(
        "32:2x2 64:2x2 96:2x1 128:1x1",
        "convolutions, each FILTERS:DOWNxACROSS with its pooling; 64k5:1x1 has a kernel of 5 "
        "x 5 pixels, not 3 x 3",
    )
    max_shift_pixels: int = key(
        0, "most pixels by which training images are moved at random", least=0
    )


@dataclass(frozen=True)
class Events(Recurrent):
    """Keys of history sources, see `training.sources.events`."""

    max_events: int = key(32, "events read of a history, the last ones")


@dataclass(frozen=True)
class Target:
    """Keys of the decoder and its loss, see `training.model.seq2seq`."""

    target_tokenizer: str = key("sentencepiece", "tokenizer of targets", choices=TOKENIZERS)
    target_vocab_size: int = key(8000, "largest target vocabulary; letters are all in it")
    max_target_length: int = key(60, "longest target, in tokens; longer pairs are left out")
    max_dev_translations: int = changeable(500, "dev sentences translated; 0 for all", least=0)
    metric: str = key(
        "auto",
        "metric of translations: bleu-zh for Chinese, symbols for symbols wrong (PER) and whole "
        "answers wrong (WER), characters for CER; auto: exact matches if most dev targets have "
        "three words or fewer, chrf for scripts without spaces, otherwise bleu",
        choices=("auto", *OF_TEXTS),
    )
    decoder: str = key("gru", "recurrent cell of the decoder", choices=CELLS)
    decoder_layers: int = key(1, "recurrent layers of the decoder")
    decoder_units: int = key(512, "units of the decoder's cell")
    embedding_size: int = key(256, "width of source and target embeddings")
    attention_heads: int = key(1, "attention heads")
    attention_options: str = key("", 'further arguments of the mechanism: "half_width=5, …"')
    order: str = key("bahdanau", "attend before or after the cell's step", choices=ORDERS)
    input_feeding: bool = key(False, "feed the last attentional vector to the cell")
    gate: bool = key(False, "gate the context as Show, Attend and Tell does")
    readout: str = key(
        "attentional",
        "layer before the output: attentional, Luong's tanh(W_c [c; s]), or maxout, Bahdanau's "
        "maxout of [c; s; y]",
        choices=("attentional", "maxout"),
    )
    readout_units: int = key(512, "units of the attentional vector")
    tie_embeddings: bool = key(
        False, "let the output layer be the embeddings; needs readout_units = embedding_size"
    )
    label_smoothing: float = changeable(0.0, "probability spread over all tokens", least=0, below=1)
    r_drop: float = key(0.0, "alpha of R-Drop's loss; a step takes twice the time", least=0)
    coverage_loss: float = changeable(
        0.0, "weight of the loss for attending twice to a place", least=0
    )
    keep_epoch: str = key(
        "auto",
        "epoch that is kept; last: the last, or with average_epochs the mean of the last; auto: "
        "best_score if 200 dev sentences or more are translated, otherwise best_perplexity",
        choices=("auto", "best_score", "best_perplexity", "last"),
    )
