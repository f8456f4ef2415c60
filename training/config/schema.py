"""The configuration of a run: keys with a meaning, a type and limits.

Sources and targets have keys of their own; all others are shared.
`training.config.load` reads a configuration from a preset, a file or `--set`.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.command.errors import ConfigError
from training.command.files import write_text
from training.config.keys import check, key
from training.config.shared import Shared
from training.config.sources import Events, Image, Text
from training.config.target import Target

SOURCES: dict[str, type[Text | Image | Events]] = {"text": Text, "image": Image, "events": Events}
TARGETS: dict[str, type[Target] | None] = {"text": Target, "label": None}
HARD_MONOTONIC = {  # what such a decoder is, or cannot do
    "source": "text",
    "target": "text",
    "order": "luong",
    "readout": "vector",
    "decoder_layers": 1,
    "attention_heads": 1,
    "attention_options": "",
    "distribution": "softmax",
    "input_feeding": False,
    "gate": False,
    "tie_embeddings": False,
    "copy": False,
    "coverage_loss": 0.0,
    "doubly_stochastic": 0.0,
}
_OWNED = {
    field.name
    for part in (*SOURCES.values(), *TARGETS.values())
    if part
    for field in dataclasses.fields(part)
}


@dataclass(frozen=True)
class Config(Target, Events, Image, Text, Shared):
    """Everything that decides a run.

    Sizes are numbers of units, lengths are tokens, rates are fractions.
    """

    source: str = key("text", "kind of source", choices=SOURCES)
    target: str = key(
        "text", "kind of target; label: the probability of an outcome", choices=TARGETS
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work, in one line that names the key."""
        keys = dataclasses.fields(self)
        for field in keys:
            check(field.name, getattr(self, field.name), field.metadata)
        targets = SOURCES[self.source].targets
        if self.target not in targets:
            raise ConfigError(
                f"source = {self.source} expected target = {' or '.join(targets)}. "
                f"Received: {self.target}"
            )
        for field in keys:
            if getattr(self, field.name) != field.default:
                self.check_key(field.name)
        Text.check(self)
        Target.check(self)
        if self.join and self.batch_size < 2:
            raise ConfigError(f"join expected batch_size of 2 or more. Received: {self.batch_size}")
        self._check_copy()
        self._check_hard_monotonic()
        if self.attention == "none":
            for name in ("coverage_loss", "copy"):
                if getattr(self, name):
                    raise ConfigError(f"{name} expected attention. Received: attention = none")
        elif self.target == "label" and self.attention != "additive":
            raise ConfigError(
                "attention expected none or additive for target = label. "
                f"Received: {self.attention}"
            )
        kinds = self.source_tokenizer, self.target_tokenizer
        if self.subword_sampling and "sentencepiece" not in kinds:
            raise ConfigError(
                "subword_sampling expected sentencepiece on a side. "
                f"Received: {' and '.join(kinds)}"
            )

    def _check_copy(self) -> None:
        if not self.copy:
            return
        for name in ("source_tokenizer", "target_tokenizer"):
            if getattr(self, name) == "sentencepiece":
                raise ConfigError(
                    f"copy expected {name} of whole words, words, characters or symbols: "
                    "sentencepiece spells what it does not know. Received: sentencepiece"
                )
        for name in ("label_smoothing", "consistency"):
            if getattr(self, name):
                raise ConfigError(f"copy expected {name} = 0. Received: {getattr(self, name)}")

    def _check_hard_monotonic(self) -> None:
        if self.attention != "hard_monotonic":
            return
        for name, value in HARD_MONOTONIC.items():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"attention = hard_monotonic expected {name} = {json.dumps(value)}. "
                    f"Received: {getattr(self, name)}"
                )

    def attention_arguments(self) -> dict[str, Any]:
        """Return what `keras_attention.mechanisms.make` takes beside the name."""
        return {
            "units": self.attention_units,
            "num_heads": self.attention_heads,
            "distribution": self.distribution,
            **self.own_arguments(),
        }

    def compiles(self) -> bool:
        """Whether XLA compiles the training step: always on JAX, and by itself for a GPU."""
        import keras  # which no command needs before it trains

        from keras_attention import backend as ours

        backend = keras.backend.backend()
        if self.jit_compile == "auto":
            return backend == "jax" or (backend == "tensorflow" and ours.on_gpu())
        return backend == "jax" or bool(self.jit_compile)

    def has_key(self, key: str) -> bool:
        """Whether a key says something about this source and target."""
        parts = SOURCES[self.source], TARGETS[self.target]
        return key not in _OWNED or any(hasattr(part, key) for part in parts)

    def check_key(self, key: str) -> None:
        """Raise a ConfigError for a key that this source and target do not have."""
        if not self.has_key(key):
            raise ConfigError(f"{key} is no key of source = {self.source}, target = {self.target}")

    def values(self) -> dict[str, int | float | str | bool]:
        """Return all keys that this source and target have, with their values."""
        return {key: v for key, v in dataclasses.asdict(self).items() if self.has_key(key)}

    def save(self, path: str | Path) -> None:
        """Write the configuration as TOML."""
        lines = [f"{key} = {_toml(value)}" for key, value in self.values().items()]
        write_text(Path(path), "\n".join(lines) + "\n")


def _toml(value: float | str | bool) -> str:
    """Return a value as TOML, which is JSON but for one character, and has no surrogate pairs."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
