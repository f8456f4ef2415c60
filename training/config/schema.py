"""The configuration of a run: one flat dataclass. Each key has a meaning, a type and limits.

`training.config.load` reads one from a preset, a file or `--set`.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from training.command.errors import ConfigError
from training.command.files import write_text
from training.command.native_log import without_native_log
from training.config.keys import check, key

# Keys that some sources and targets have alone; all others are everybody's.
_RECURRENT = ("encoder", "bidirectional", "encoder_layers", "encoder_units")
SOURCE_KEYS = {
    "text": (
        *("source_tokenizer", "source_vocab_size", "max_source_length", "join", "join_most"),
        *("subword_sampling", "copy", "copy_hidden", "dev", "test", "extra_data", "batch_tokens"),
        *_RECURRENT,
    ),
    "image": ("image_height", "image_width", "image_channels", "convolutions", "shift"),
    "events": ("max_events", *_RECURRENT),
}
TARGET_KEYS = {
    "text": (
        *("target_tokenizer", "target_vocab_size", "max_target_length", "validation_limit"),
        *("metric", "decoder", "decoder_layers", "decoder_units", "embedding_size", "order"),
        *("input_feeding", "gate", "readout_units", "tie_embeddings", "variational_dropout"),
        *("label_smoothing", "length_multiple", "doubly_stochastic", "coverage_loss"),
        *("attention_heads", "attention_options", "scheduled_sampling", "readout", "keep_by"),
        *("consistency", "word_dropout"),
    ),
    "label": (),
}
SPOKEN = {
    "text": ("text",),
    "image": ("text",),
    "events": ("label",),
}  # what can be said of each source

TOKENIZERS = ("sentencepiece", "words", "characters", "symbols")
CELLS = {  # module and class of each
    "simple_rnn": ("keras.layers", "SimpleRNNCell"),
    "gru": ("keras.layers", "GRUCell"),
    "lstm": ("keras.layers", "LSTMCell"),
    "layer_norm_gru": ("keras_attention", "LayerNormGRUCell"),
    "layer_norm_lstm": ("keras_attention", "LayerNormLSTMCell"),
}


@functools.cache
def _layers() -> tuple[ModuleType, ModuleType]:
    """Return `keras_attention`'s distributions and mechanisms.

    They import Keras and its backend, for which commands that make no configuration do not wait.
    """
    with without_native_log():  # of TensorFlow, where it is Keras's backend
        from keras_attention import distributions, mechanisms
    return distributions, mechanisms


def attentions() -> tuple[str, ...]:
    """Return what the key `attention` can be, nothing `without_layers`."""
    return ("none", *_layers()[1].BY_NAME) if _with_layers.get() else ()


def _distributions() -> tuple[str, ...]:
    return tuple(_layers()[0].BY_NAME) if _with_layers.get() else ()


_with_layers = contextvars.ContextVar("_with_layers", default=True)


@contextmanager
def without_layers() -> Iterator[None]:
    """Do not check what says which layers there are: that takes Keras, with its backend 600 MB."""
    token = _with_layers.set(False)
    try:
        yield
    finally:
        _with_layers.reset(token)


@dataclass(frozen=True)
class Config:
    """Everything that decides a run.

    Sizes are numbers of units, lengths are tokens, rates are fractions.
    """

    # Data, see training.data.corpus and training.data.splits.
    data: str = key("phrasebook-en-fr", "what is learned from: a SPEC")
    dev: str = key(
        "",
        "what progress is measured on: a SPEC, or of files the share to hold out, such as 0.05; "
        "else the corpus's dev split, or 1 in 50 of the lines, at most 1,000",
    )
    test: str = key(
        "", "what training.evaluate scores: likewise; else the corpus's test split, or nothing"
    )
    extra_data: str = key(
        "",
        "learned from beside data, whole: SPECs between spaces, of other corpora or of made "
        "translations; sources that dev or test have are left out",
    )
    train_limit: int = key(0, "training pairs of data used, 0 for all", least=0)
    validation_limit: int = key(
        500, "dev sentences translated after each epoch, 0 for all", least=0, later=True
    )
    metric: str = key(
        "bleu",
        "of translations; bleu-zh for Chinese, phones for PER and WER, characters for CER",
        choices=("bleu", "bleu-zh", "phones", "characters"),
    )

    # What is attended to, and what is said of it, see training.sources.
    source: str = key("text", "what is attended to", choices=SOURCE_KEYS)
    target: str = key(
        "text", "what is said of it; label: the probability of an outcome", choices=TARGET_KEYS
    )

    # Text: how it becomes tokens, see training.data.tokenizers.
    source_tokenizer: str = key("sentencepiece", "how sources are cut", choices=TOKENIZERS)
    target_tokenizer: str = key("sentencepiece", "how targets are cut", choices=TOKENIZERS)
    source_vocab_size: int = key(8000, "most source tokens there are")
    target_vocab_size: int = key(8000, "most target tokens there are")
    max_source_length: int = key(60, "pairs with more source tokens are left out")
    max_target_length: int = key(60, "pairs with more target tokens are left out")
    join: float = key(
        0.0, "share of batches whose pairs are joined with others, for length", least=0, below=1
    )
    join_most: int = key(8, "pairs in a joined one; fewer where it would be too long", least=2)
    subword_sampling: float = key(
        0.0,
        "power of their probability by which training draws subwords, such as 0.2; 0: not at all",
        least=0,
    )

    # Images: how they are read and encoded, see training.sources.image.source.
    image_height: int = key(64, "pixels, to which all are resized")
    image_width: int = key(256, "likewise")
    image_channels: int = key(1, "3 for colour", choices=(1, 3))
    convolutions: str = key(
        "32:2x2 64:2x2 96:2x1 128:1x1",
        "of each: filters:pooling, down x across; 64k5 has 64 filters that see 5 x 5 pixels, not 3",
    )
    shift: int = key(0, "pixels by which images are moved in training, at most", least=0)

    # Histories: how they are read, see training.sources.events.source.
    max_events: int = key(32, "of longer ones the last are read")

    # Model, see training.model.seq2seq.
    encoder: str = key("gru", "the encoder's cell", choices=CELLS)
    bidirectional: bool = key(True, "whether the encoder reads both ways")
    encoder_layers: int = key(1, "recurrent layers of the encoder")
    encoder_units: int = key(256, "of the encoder's cell, in each direction")
    decoder: str = key("gru", "the decoder's cell", choices=CELLS)
    decoder_layers: int = key(1, "recurrent layers of the decoder")
    decoder_units: int = key(512, "of the decoder's cell")
    embedding_size: int = key(256, "of source and target embeddings")
    attention: str = key(
        "additive",
        "the decoder's, see docs/mechanisms.md; none: the encoder's last state",
        choices=attentions,
    )
    attention_units: int = key(512, "of the hidden layer, for those that have one")
    attention_heads: int = key(1, "of the attention")
    attention_options: str = key("", 'arguments of the mechanism\'s own: "half_width=5, …"')
    distribution: str = key("softmax", "what makes weights out of scores", choices=_distributions)
    order: str = key(
        "bahdanau", "attend before the cell's step, or after it", choices=("bahdanau", "luong")
    )
    input_feeding: bool = key(False, "whether the cell reads the last attentional vector too")
    gate: bool = key(False, "of the context, Show, Attend and Tell's")
    readout: str = key(
        "vector",
        "tanh(W_c [c; s]); deep: Bahdanau's, a maxout of [c; s; y]",
        choices=("vector", "deep"),
    )
    readout_units: int = key(512, "of the attentional vector tanh(W_c [c; s])")
    copy: bool = key(False, "of words that no vocabulary has, from the source: a pointer-generator")
    copy_hidden: float = key(
        0.0,
        "share of training's pairs whose names and numbers are hidden, so that they are copied",
        least=0,
        below=1,
    )
    tie_embeddings: bool = key(
        False, "target embedding = output layer; needs readout_units = embedding_size"
    )
    dropout: float = key(
        0.2, "on embeddings, memory and attentional vector", least=0, below=1, later=True
    )
    word_dropout: float = key(
        0.0, "share of tokens whose embedding is dropped whole", least=0, below=1
    )
    variational_dropout: float = key(
        0.0, "on inputs and states of cells; trains more slowly", least=0, below=1
    )

    # Training, see training.train.
    epochs: int = key(10, "times that all pairs are seen", later=True)
    batch_size: int = key(64, "sentence pairs in a step")
    batch_tokens: int = key(
        0, "in place of it: tokens in a step, padding too, of the side with more; 0: none", least=0
    )
    learning_rate: float = key(1e-3, "of Adam, at its highest", above=0, later=True)
    warmup_steps: int = key(200, "steps over which the rate rises", least=0, later=True)
    schedule: str = key(
        "cosine",
        "of the rate: falls to 0 over all epochs, stays, or is cut on plateaus",
        choices=("cosine", "constant", "plateau"),
        later=True,
    )
    plateau_patience: int = key(2, "epochs without a better score before a cut", later=True)
    plateau_factor: float = key(0.5, "what the rate is multiplied by", above=0, below=1, later=True)
    clip_norm: float = key(1.0, "largest norm of the whole gradient", above=0, later=True)
    label_smoothing: float = key(0.0, "share of other tokens", least=0, below=1, later=True)
    consistency: float = key(
        0.0,
        "weight of what divides two answers under dropout, R-Drop's alpha: twice the time",
        least=0,
    )
    coverage_loss: float = key(
        0.0, "weight of the loss for looking twice at the same place", least=0, later=True
    )
    doubly_stochastic: float = key(
        0.0, "weight of the loss that spreads attention over the source", least=0, later=True
    )
    scheduled_sampling: float = key(
        0.0, "share of its own tokens that it reads, at the end", least=0, below=1, later=True
    )
    keep_by: str = key(
        "auto",
        "the epoch that is kept: of the best score or the least perplexity; auto takes the score "
        "where 200 dev sentences or more are translated",
        choices=("auto", "score", "perplexity"),
    )
    patience: int = key(
        0, "epochs without a better one before training stops, 0 for never", least=0, later=True
    )
    average_epochs: int = key(
        0, "last ones whose mean weights compete with the best, 0 for none", least=0, later=True
    )
    precision: str = key(
        "float32",
        "of the products",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
    )
    jit_compile: bool = key(False, "whether XLA compiles the step")
    length_multiple: int = key(1, "batches are padded to a multiple of it; more with jit_compile")
    seed: int = key(1, "of all that is drawn at random", least=0)

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one line that names the key."""
        for declared in dataclasses.fields(self):
            check(declared.name, getattr(self, declared.name), declared.metadata)
        if self.target not in SPOKEN[self.source]:
            raise ConfigError(
                f"source = {self.source} expected target = {' or '.join(SPOKEN[self.source])}. "
                f"Received: {self.target}"
            )
        for declared in dataclasses.fields(self):
            if getattr(self, declared.name) != declared.default:
                self.check_key(declared.name)
        if self.attention == "none":
            if self.coverage_loss:
                raise ConfigError("coverage_loss expected attention. Received: attention = none")
            if self.copy:
                raise ConfigError("copy expected attention. Received: attention = none")
        elif _with_layers.get():
            try:
                _layers()[1].make(self.attention, **self.attention_arguments())
            except (TypeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise ConfigError(f"attention = {self.attention}: {reason}") from None
        if self.copy:
            self._check_copy()
        elif self.copy_hidden:
            raise ConfigError("copy_hidden expected copy. Received: copy = false")
        cut = self.source_tokenizer, self.target_tokenizer
        if self.subword_sampling and "sentencepiece" not in cut:
            raise ConfigError(
                f"subword_sampling expected sentencepiece on a side. Received: {' and '.join(cut)}"
            )
        if self.batch_tokens and self.join:
            raise ConfigError(f"batch_tokens expected join = 0. Received: {self.join}")
        if self.target == "label" and self.attention not in ("none", "additive"):
            raise ConfigError(
                "attention expected none or additive for target = label. "
                f"Received: {self.attention}"
            )
        if self.tie_embeddings and self.readout_units != self.embedding_size:
            raise ConfigError(
                "tie_embeddings expected readout_units = embedding_size. "
                f"Received: {self.readout_units} and {self.embedding_size}"
            )

    def _check_copy(self) -> None:
        for name in ("source_tokenizer", "target_tokenizer"):
            if getattr(self, name) == "sentencepiece":
                raise ConfigError(
                    f"copy expected {name} of whole words, words, characters or symbols: "
                    "sentencepiece spells what it does not know. Received: sentencepiece"
                )
        for name in ("label_smoothing", "join", "consistency"):
            if getattr(self, name):
                raise ConfigError(f"copy expected {name} = 0. Received: {getattr(self, name)}")

    def attention_arguments(self) -> dict[str, Any]:
        """Return what `keras_attention.mechanisms.make` takes beside the name."""
        own: dict[str, Any] = {}
        for option in filter(str.strip, self.attention_options.split(",")):
            key, separator, value = (part.strip() for part in option.partition("="))
            if not separator or not key or not value:
                raise ConfigError(f"attention_options expected KEY=VALUE, … Received: {option}")
            try:
                own[key] = json.loads(value)  # a number, true or false
            except ValueError:
                own[key] = value
        shared = {
            "units": self.attention_units,
            "num_heads": self.attention_heads,
            "distribution": self.distribution,
        }
        for key in shared:
            if key in own:
                raise ConfigError(f"attention_options has no {key}, which has a key of its own")
        return {**shared, **own}

    def has_key(self, key: str) -> bool:
        """Whether a key says something about this source and target."""
        owned = {key for keys in (*SOURCE_KEYS.values(), *TARGET_KEYS.values()) for key in keys}
        return key not in owned or key in (*SOURCE_KEYS[self.source], *TARGET_KEYS[self.target])

    def check_key(self, key: str) -> None:
        """Raise a ConfigError for a key that this source and target do not have."""
        if not self.has_key(key):
            raise ConfigError(f"{key} is no key of source = {self.source}, target = {self.target}")

    def values(self) -> dict[str, int | float | str | bool]:
        """Return all keys that this source and target have, with their values."""
        return {key: v for key, v in dataclasses.asdict(self).items() if self.has_key(key)}

    def save(self, path: str | Path) -> None:
        """Write the configuration as TOML."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in self.values().items()]
        write_text(Path(path), "\n".join(lines) + "\n")
