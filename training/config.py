"""The configuration of a run: one flat dataclass, read from a preset and written to the run."""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from training.errors import UserError

PRESETS = Path(__file__).with_name("presets")

TOKENIZERS = ("sentencepiece", "words", "characters", "symbols")
CELLS = ("simple_rnn", "gru", "lstm", "layer_norm_gru", "layer_norm_lstm")
ATTENTIONS = ("none", "additive", "normalized_additive", "dot", "scaled_dot", "general")


class ConfigError(UserError):
    """A preset, key or value that does not exist or does not fit."""


@dataclass(frozen=True)
class Config:
    """Everything that decides a run.

    Sizes are numbers of units, lengths are tokens, rates are fractions.
    """

    # Data: what is learned from, see training.corpus.
    data: str = "phrasebook-en-fr"
    train_limit: int = 0  # training pairs used, 0 for all
    validation_limit: int = 500  # dev sentences translated after each epoch, 0 for all
    metric: str = "bleu"  # of the dev set; or bleu-zh (Chinese), phones (PER and WER)

    # Text: how it becomes tokens, see training.text.
    source_tokenizer: str = "sentencepiece"
    target_tokenizer: str = "sentencepiece"
    source_vocab_size: int = 8000
    target_vocab_size: int = 8000
    max_source_length: int = 60
    max_target_length: int = 60

    # Model, see training.model.
    encoder: str = "gru"
    bidirectional: bool = True
    encoder_layers: int = 1
    encoder_units: int = 256  # of each direction
    decoder: str = "gru"
    decoder_layers: int = 1
    decoder_units: int = 512
    embedding_size: int = 256
    attention: str = "additive"
    attention_units: int = 512  # of additive attention
    order: str = "bahdanau"
    input_feeding: bool = False
    readout_units: int = 512  # of the attentional vector tanh(W_c [c; s])
    tie_embeddings: bool = False  # target embedding = output layer; needs readout = embedding size
    dropout: float = 0.2  # on embeddings, memory and attentional vector
    variational_dropout: float = 0.0  # on inputs and states of cells; trains more slowly

    # Training, see training.train.
    epochs: int = 10
    batch_size: int = 64  # sentence pairs
    learning_rate: float = 1e-3  # of Adam, at its highest
    warmup_steps: int = 200
    schedule: str = "cosine"  # to 0 over all epochs, "constant", or "plateau":
    plateau_patience: int = 2  # epochs without a better dev score before the rate is cut
    plateau_factor: float = 0.5  # what it is multiplied by
    clip_norm: float = 1.0  # of the whole gradient
    label_smoothing: float = 0.0
    patience: int = 0  # epochs without a better dev score before training stops, 0 for never
    average_epochs: int = 0  # at the end, the mean weights of the last ones compete with the best
    precision: str = "float32"  # or mixed_bfloat16, mixed_float16
    jit_compile: bool = False
    length_multiple: int = 1  # batches are padded to a multiple of it; more with jit_compile
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one line that names the key."""
        choices = {
            "source_tokenizer": TOKENIZERS,
            "target_tokenizer": TOKENIZERS,
            "encoder": CELLS,
            "decoder": CELLS,
            "attention": ATTENTIONS,
            "metric": ("bleu", "bleu-zh", "phones"),
            "order": ("bahdanau", "luong"),
            "schedule": ("cosine", "constant", "plateau"),
            "precision": ("float32", "mixed_bfloat16", "mixed_float16"),
        }
        for key, allowed in choices.items():
            if getattr(self, key) not in allowed:
                raise ConfigError(
                    f"{key} expected one of {', '.join(allowed)}. Received: {getattr(self, key)}"
                )
        at_least_0 = {
            *("train_limit", "validation_limit", "warmup_steps"),
            *("patience", "average_epochs", "seed"),
        }
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and value < (0 if field.name in at_least_0 else 1):
                least = 0 if field.name in at_least_0 else 1
                raise ConfigError(f"{field.name} expected at least {least}. Received: {value}")
        for key in ("dropout", "variational_dropout", "label_smoothing"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"{key} expected 0 <= value < 1. Received: {getattr(self, key)}")
        if not 0 < self.plateau_factor < 1:
            raise ConfigError(
                f"plateau_factor expected 0 < value < 1. Received: {self.plateau_factor}"
            )
        if self.tie_embeddings and self.readout_units != self.embedding_size:
            raise ConfigError(
                "tie_embeddings expected readout_units = embedding_size. "
                f"Received: {self.readout_units} and {self.embedding_size}"
            )

    def save(self, path: str | Path) -> None:
        """Write the configuration as TOML."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in dataclasses.asdict(self).items()]
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_preset(name: str) -> Config:
    """Read the preset of this name.

    Raises:
        ConfigError: if there is none.
    """
    if name not in preset_names():
        raise ConfigError(f"unknown preset {name!r}; there are {', '.join(preset_names())}")
    return load_config(PRESETS / f"{name}.toml")


def load_config(path: str | Path) -> Config:
    """Read a TOML file of keys and values.

    Raises:
        ConfigError: if the file cannot be read or holds a key or value that does not fit.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error
    return _with_values(Config(), values)


def override(config: Config, settings: Iterable[str]) -> Config:
    """Return the configuration with `KEY=VALUE` settings applied, as after `--set`.

    Raises:
        ConfigError: for an unknown key or a value that does not fit.
    """
    values = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(f"--set expected KEY=VALUE. Received: {setting}")
        values[key.strip()] = value.strip()
    return _with_values(config, values)


def _with_values(config: Config, values: dict) -> Config:
    types = {field.name: field.type for field in dataclasses.fields(Config)}
    checked = {}
    for key, value in values.items():
        if key not in types:
            near = difflib.get_close_matches(key, types, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(f"unknown key {key!r}{hint}")
        checked[key] = _parse(key, value, types[key])
    return dataclasses.replace(config, **checked)


def _parse(key: str, value: object, kind: str) -> object:
    wrong = ConfigError(f"{key} expected a value of type {kind}. Received: {value!r}")
    if kind == "bool":
        words = {"true": True, "1": True, "false": False, "0": False}
        if str(value).lower() not in words:
            raise wrong
        return words[str(value).lower()]
    if kind == "str":
        if not isinstance(value, str):
            raise wrong
        return value
    try:
        return int(value) if kind == "int" and not isinstance(value, float) else float(value)
    except (TypeError, ValueError):
        raise wrong from None
