"""Configurations from presets, from files and from `KEY=VALUE` settings."""

from __future__ import annotations

import dataclasses
import difflib
import json
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from training.command.errors import ConfigError, UsageError
from training.config.schema import Config

PRESETS = Path(__file__).parents[1] / "presets"


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_preset(name: str) -> Config:
    """Read the preset of this name, or a file whose name ends in `.toml`."""
    if name.endswith(".toml"):
        return load_config(name)
    if name not in preset_names():
        raise UsageError(
            f"unknown preset {name!r}; there are {', '.join(preset_names())}, and files NAME.toml"
        )
    return load_config(PRESETS / f"{name}.toml")


def about_preset(name: str) -> dict[str, str]:
    """Return a preset's `data`, and of its table `about` `task`, `size`, `time` and `figure`."""
    values = _read_toml(PRESETS / f"{name}.toml")
    return {"data": values["data"], **values.get("about", {})}


def own_data_preset(pairs: int) -> tuple[Config, str]:
    """Return the settings that fit so many sentence pairs, and the name of their file."""
    size = "small" if pairs < 20_000 else "medium" if pairs < 100_000 else "large"
    path = PRESETS / "own" / f"{size}.toml"
    return load_config(path), f"training/presets/own/{path.name}"


def load_config(path: str | Path) -> Config:
    """Read a TOML file of keys and values."""
    values = _read_toml(path)
    if not values:
        raise ConfigError(f"the configuration {path} is empty")
    values.pop("about", None)
    return _with_values(Config(), values)


def override(config: Config, settings: Iterable[str]) -> Config:
    """Return the configuration with `KEY=VALUE` settings applied, as after `--set`."""
    values = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(f"--set expected KEY=VALUE. Received: {setting}")
        values[key.strip()] = value.strip()
    return _with_values(config, values)


def changed_later(config: Config, settings: Iterable[str]) -> Config:
    """Apply settings to the configuration of a run that has begun; a ConfigError for most keys."""
    changed, later = override(config, settings), later_keys()
    for name, value in vars(changed).items():
        if value != getattr(config, name) and name not in later:
            raise ConfigError(
                f"{name} cannot change in a run that has begun; {', '.join(later)} can"
            )
    return changed


def later_keys() -> list[str]:
    """Name the keys that can change in a run that has begun."""
    return [f.name for f in dataclasses.fields(Config) if f.metadata.get("later")]


def keys_help() -> str:
    """List all keys with their defaults and meanings, for `--help`."""
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
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error


def _with_values(config: Config, values: Mapping[str, Any]) -> Config:
    types = get_type_hints(Config)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(f"unknown key {name!r}{hint}")
        checked[name] = _parse(name, value, types[name])
    replaced = dataclasses.replace(config, **checked)
    for name in checked:
        replaced.check_key(name)
    return replaced


def _parse(name: str, value: object, kind: Any) -> object:
    """Read a value of TOML, or the text of one, as the type of its key."""
    words = {"true": True, "1": True, "false": False, "0": False}
    if kind == bool | str:
        return words.get(str(value).lower(), value)
    wrong = ConfigError(f"{name} expected a value of type {kind.__name__}. Received: {value!r}")
    if kind is bool:
        if str(value).lower() not in words:
            raise wrong
        return words[str(value).lower()]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong
    if kind is str:
        if not isinstance(value, str):
            raise wrong
        return value
    if kind is int and isinstance(value, float):
        raise wrong
    try:
        return kind(value)
    except (ValueError, OverflowError):
        raise wrong from None
