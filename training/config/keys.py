"""A key of the configuration: its default, its meaning, and the values it can have."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from training.command.errors import ConfigError

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
    later: bool = False,
) -> Any:
    """Declare a key of the configuration.

    Args:
        default: its value where nothing else is said; its type is the key's.
        meaning: what it is, in a few words, for `--help`.
        choices: the values it can have.
        least: the smallest value; 1 for whole numbers unless said.
        above: what the value must be more than.
        below: what the value must be less than.
        most: the largest value of a whole number.
        later: whether a run that has begun can go on with another value.
    """
    if isinstance(default, int) and not isinstance(default, bool) and least is None:
        least = 1
    limits = {"choices": tuple(choices), "least": least, "above": above, "below": below}
    metadata = {"meaning": meaning, "later": later, "most": most, **limits}
    return field(default=default, metadata=metadata)


def check(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Raise a ConfigError, in one line that names the key, for a value that it cannot have."""
    choices = metadata.get("choices", ())
    if choices and value not in choices:
        allowed = ", ".join(str(x).lower() if isinstance(x, bool) else str(x) for x in choices)
        raise ConfigError(f"{name} expected one of {allowed}. Received: {value}")
    if isinstance(value, str) and not is_unicode(value):
        raise ConfigError(f"{name} expected text of Unicode. Received: {value!a}")
    if isinstance(value, str | bool):
        return
    if isinstance(value, int) and value > metadata["most"]:
        raise ConfigError(f"{name} expected at most {metadata['most']}. Received: {value}")
    if not math.isfinite(value):
        raise ConfigError(f"{name} expected a finite number. Received: {value}")
    limits = [
        (f"{word} {metadata[limit]}", compare(value, metadata[limit]))
        for limit, word, compare in _LIMITS
        if metadata.get(limit) is not None
    ]
    if not all(holds for _, holds in limits):
        wanted = " and ".join(words for words, _ in limits)
        raise ConfigError(f"{name} expected {wanted}. Received: {value}")


def is_unicode(text: str) -> bool:
    """Whether a text can be written: a path of other bytes has lone surrogates in their place."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
