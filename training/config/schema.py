"""The configuration of a run, read from presets, files and `KEY=VALUE` settings.

Each kind of source and target has its own keys. All other keys are shared.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from training.command.errors import ConfigError, UsageError
from training.command.files import write_text
from training.config._keys import Events, Image, Shared, Target, Text, check, key

SOURCES: dict[str, type[Text | Image | Events]] = {"text": Text, "image": Image, "events": Events}
# Values of other keys that a setting requires. Hard monotonic attention has a decoder of its own.
NEEDS: dict[str, dict[str, str | bool | float]] = {
    "attention = hard_monotonic": {
        "order": "luong",
        "readout": "attentional",
        "decoder_layers": 1,
        "attention_heads": 1,
        "attention_options": "",
        "distribution": "softmax",
        "input_feeding": False,
        "gate": False,
        "tie_embeddings": False,
        "copy": False,
        "coverage_loss": 0.0,
    },
    "attention = none": {"coverage_loss": 0.0, "copy": False},
    "copy": {"concat_pairs": 0.0, "label_smoothing": 0.0, "r_drop": 0.0},
    "copy_masking": {"copy": True},
    "batch_tokens": {"concat_pairs": 0.0},
}
NEEDS["other_attention = hard_monotonic"] = NEEDS["attention = hard_monotonic"]
OTHER_NAMES = {"bahdanau": "additive", "luong": "general", "multiplicative": "general"}
# Old names of keys and of their values. They still work, with a note.
OLD_KEYS = {
    "target_bound": "max_answer",
    "keep_by": "keep_epoch",
    "join": "concat_pairs",
    "copy_hidden": "copy_masking",
    "consistency": "r_drop",
    "validation_limit": "max_dev_translations",
    "shift": "max_shift_pixels",
}
OLD_VALUES = {
    "keep_epoch": {"score": "best_score", "perplexity": "best_perplexity"},
    "readout": {"vector": "attentional", "deep": "maxout"},
}
# keys of old runs that no longer exist, each with the value that had no effect
GONE = {"subword_sampling": 0}
_OWNED = {field.name for part in (*SOURCES.values(), Target) for field in dataclasses.fields(part)}


@dataclass(frozen=True)
class Config(Target, Events, Image, Text, Shared):
    """All settings of a run.

    Sizes are numbers of units, lengths are numbers of tokens, rates are fractions.
    """

    source: str = key("text", "kind of source", choices=SOURCES)

    @property
    def target(self) -> str:
        """The kind of target: "text", or "label" for the probability of an outcome."""
        return "label" if self.source == "events" else "text"

    def __post_init__(self) -> None:
        """Raise a one-line ConfigError, which names the key, for values that cannot work."""
        keys = dataclasses.fields(self)
        for field in keys:
            check(field.name, getattr(self, field.name), field.metadata)
        for field in keys:
            if getattr(self, field.name) != field.default:
                self.check_key(field.name)
        if not re.fullmatch(
            r"auto|\d{1,4}(?:\.\d{1,2})?x\+[1-9]\d{0,4}", self.max_answer, re.ASCII
        ):
            wanted = "auto, or a bound such as 2x+10 or 1.25x+4"
            raise ConfigError.expected("max_answer", wanted, self.max_answer)
        self.attention_arguments()
        if self.target == "label" and self.attention not in ("none", "additive"):
            wanted = f"none or additive for source = {self.source}"
            raise ConfigError.expected("attention", wanted, self.attention)
        self._check_needs()
        if self.concat_pairs and self.batch_size < 2:
            raise ConfigError.expected("concat_pairs", "a batch_size of 2 or more", self.batch_size)

    def _check_needs(self) -> None:
        for setting, needs in needs_of(vars(self)):
            wrong = {key: value for key, value in needs.items() if getattr(self, key) != value}
            if wrong:
                needed = ", ".join(f"{key} = {json.dumps(value)}" for key, value in wrong.items())
                have = ", ".join(json.dumps(getattr(self, key)) for key in wrong)
                add = " ".join(f"--set {key}={_typed(value)}" for key, value in wrong.items())
                raise ConfigError(
                    f"{setting} needs {needed}, but {'it is' if len(wrong) == 1 else 'they are'} "
                    f"{have}. Add {add}"
                )

    @property
    def bound(self) -> tuple[float, int]:
        """The factor and the constant of an output's length limit, in tokens.

        The limit is factor · source tokens + constant, see `rules.most_tokens`. The bound is
        (2, 10) in a run that did not measure its targets.
        """
        bound = "2x+10" if self.max_answer == "auto" else self.max_answer
        factor, more = bound.split("x+")
        return float(factor) if "." in factor else int(factor), int(more)

    def attention_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `keras_attention.mechanisms.make`.

        The layer itself rejects an argument that it does not have.
        """
        arguments: dict[str, Any] = {
            "units": self.attention_units,
            "num_heads": self.attention_heads,
            "distribution": self.distribution,
        }
        for option in filter(str.strip, self.attention_options.split(",")):
            name, separator, value = (part.strip() for part in option.partition("="))
            if not separator or not name or not value:
                wanted = "KEY=VALUE pairs with commas between them"
                raise ConfigError.expected("attention_options", wanted, option)
            keys = {"units": "attention_units", "num_heads": "attention_heads"}
            if name in ("units", "num_heads", "distribution"):
                raise ConfigError(
                    f"attention_options cannot set {name}. Use --set {keys.get(name, name)}=…"
                )
            try:
                arguments[name] = json.loads(value)  # a number, true or false
            except ValueError:
                arguments[name] = value
        return arguments

    def compiles(self) -> bool:
        """Return whether XLA compiles the training step: always on JAX, by default on a GPU."""
        import keras  # imported late: no command needs Keras before training

        from keras_attention import backend as ours

        backend = keras.backend.backend()
        if self.jit_compile == "auto":
            return backend == "jax" or (backend == "tensorflow" and ours.on_gpu())
        return backend == "jax" or bool(self.jit_compile)

    def has_key(self, key: str) -> bool:
        """Return whether this kind of source, or its kind of target, has the key."""
        parts = [SOURCES[self.source], *([Target] if self.target == "text" else [])]
        return key not in _OWNED or any(hasattr(part, key) for part in parts)

    def check_key(self, key: str) -> None:
        """Raise a ConfigError if this kind of source does not have the key."""
        if not self.has_key(key):
            raise ConfigError(
                f"{key} has no effect on source = {self.source}. Remove --set {key}=…"
            )

    def values(self) -> dict[str, int | float | str | bool]:
        """Return all keys that this kind of source has, with their values."""
        return {key: v for key, v in dataclasses.asdict(self).items() if self.has_key(key)}

    def save(self, path: str | Path) -> None:
        """Write the configuration as TOML."""
        lines = [f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in self.values().items()]
        # JSON values are valid TOML, except for the character U+007F.
        write_text(Path(path), "\n".join([*lines, ""]).replace("\x7f", "\\u007f"))


def needs_of(values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str | bool | float]]]:
    """Yield the settings in use that need values of other keys, each with these values.

    `values` has all keys.
    """
    # To copy, tokens must be whole words: sentencepiece splits unknown words.
    sides = ("source_tokenizer", "target_tokenizer")
    words = {side: "words" for side in sides if values[side] == "sentencepiece"}
    more: dict[str, dict[str, Any]] = {
        "copy": words,
        "tie_embeddings": {"readout_units": values["embedding_size"]},
    }
    for setting in (*NEEDS, "tie_embeddings"):
        name, _, value = setting.partition(" = ")
        if values[name] and (not value or values[name] == value):
            yield setting, {**more.get(setting, {}), **NEEDS.get(setting, {})}


PRESETS = Path(__file__).parents[1] / "presets"


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_preset(name: str) -> Config:
    """Return the configuration of a preset, or of a file whose name ends in `.toml`."""
    if name.endswith(".toml"):
        return load_config(name)
    if name not in preset_names():
        raise UsageError(
            f"There is no preset {name!r}. List the presets: python -m training.presets. "
            "Your own file: --preset NAME.toml"
        )
    return load_config(PRESETS / f"{name}.toml")


def about_preset(name: str) -> dict[str, str]:
    """Return a preset's `data`, and `task`, `size`, `time` and `figure` of its table `about`."""
    values = _read_toml(PRESETS / f"{name}.toml")
    return {"data": values["data"], **values.get("about", {})}


def own_data_preset(pairs: int) -> tuple[Config, str]:
    """Return the settings for `pairs` sentence pairs, and the name of the settings file."""
    size = "small" if pairs < 20_000 else "medium" if pairs < 100_000 else "large"
    path = PRESETS / "own" / f"{size}.toml"
    return load_config(path), f"training/presets/own/{path.name}"


def load_config(path: str | Path) -> Config:
    """Return the configuration in a TOML file of keys and values."""
    values = _read_toml(path)
    if not values:
        raise ConfigError(f"the configuration {path} is empty")
    values.pop("about", None)
    return with_values(Config(), values)


def override(config: Config, settings: Iterable[str]) -> Config:
    """Return the configuration with `KEY=VALUE` settings applied, as after `--set`."""
    return with_values(config, read_settings(settings))


def read_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Return the values of `KEY=VALUE` settings, by key.

    Raises ConfigError if a single setting is wrong: an unknown key, or a value out of its limits.
    """
    values = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(
                f"--set needs KEY=VALUE, such as --set epochs=40, but it is {setting}"
            )
        values[key.strip()] = value.strip()
    return _checked(values)


def changed_later(config: Config, settings: Iterable[str]) -> Config:
    """Return the configuration of a begun run with settings applied.

    Raises ConfigError for a key that cannot change once a run has begun.
    """
    changed, later = override(config, settings), changeable_keys()
    for name, value in vars(changed).items():
        if value != getattr(config, name) and name not in later:
            raise ConfigError(
                f"This run already has its {name}. To change it, start a new run with another "
                f"--output. You can still change: {', '.join(later)}"
            )
    return changed


def changeable_keys() -> list[str]:
    """Return the names of the keys that can change in a run that has begun."""
    return [f.name for f in dataclasses.fields(Config) if f.metadata.get("can_change")]


def keys_help() -> str:
    """Return the list of all keys, with their defaults and meanings, for `--help`."""
    lines = []
    for declared in dataclasses.fields(Config):
        choices = declared.metadata.get("choices", ())
        meaning = declared.metadata.get("meaning", "")
        meaning += f" ({', '.join(map(str, choices))})" if choices else ""
        start = f"  {declared.name} = {json.dumps(declared.default)}"
        lines += textwrap.wrap(
            f"{start:<35} {meaning}", 100, subsequent_indent=" " * 36, break_on_hyphens=False
        )
    return "\n".join(lines)


def _read_toml(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:  # an unreadable file, wrong UTF-8, or wrong TOML
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the configuration {path}: {reason}") from error


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return the configuration with these values of keys."""
    checked = _checked(values)
    replaced = dataclasses.replace(config, **checked)
    for name in checked:
        replaced.check_key(name)
    return replaced


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    types = get_type_hints(Config)
    limits = {field.name: field.metadata for field in dataclasses.fields(Config)}
    checked: dict[str, Any] = {}
    for name, value in _renamed(values).items():
        if name in GONE and value == GONE[name]:
            continue
        if name not in types:
            near = difflib.get_close_matches(name, types, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(
                f"There is no key {name!r}.{hint} "
                "All keys: python -m training.train --help-settings"
            )
        if name == "attention" and (meant := OTHER_NAMES.get(value)):
            print(
                f"note: attention = {value} is used as {meant}. To choose another mechanism, give "
                "its own name (docs/mechanisms.md lists all)"
            )
            value = meant
        checked[name] = _parse(name, value, types[name])
        check(name, checked[name], limits[name])
    return checked


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by the current names of their keys, and print a note on old names."""
    renamed, notes = {}, []
    for old, old_value in values.items():
        name = OLD_KEYS.get(old, old)
        value = OLD_VALUES.get(name, {}).get(old_value, old_value)
        if (name, value) != (old, old_value):
            notes.append(f"{old} = {old_value} is now {name} = {value}")
        renamed[name] = value
    if notes:
        _note(f"note: old names of settings: {', '.join(notes)}")
    return renamed


@cache
def _note(text: str) -> None:
    """Print a note, once in a process, on standard error."""
    print(text, file=sys.stderr)


def _typed(value: str | bool | float) -> str:
    """Return a value as it is typed after `--set KEY=`."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _parse(name: str, value: object, kind: Any) -> object:
    """Return a value of TOML, or the text of a setting, converted to the type of its key."""
    words = {"true": True, "1": True, "false": False, "0": False}
    if kind in (bool, bool | str):
        value = words.get(str(value).lower(), value)
    elif isinstance(value, str) or type(value) is int:
        with suppress(ValueError, OverflowError):
            value = value if kind is str else kind(value)
    if type(value) is not kind and kind != bool | str:
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise ConfigError.expected(name, wanted.get(kind, "true, false or auto"), repr(value))
    return value
