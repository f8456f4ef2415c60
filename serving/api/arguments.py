"""Arguments of clients, checked before anything is sent: errors are one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

MOST_SECONDS = 1e9  # of a deadline; gRPC counts nanoseconds since 1970 in 63 bits
MOST_RETRIES = 4  # gRPC makes five attempts at most
_MOST_SHOWN = 60  # characters of a wrong argument in an error


def shown(value: Any) -> str:
    """Return a wrong argument as errors show it."""
    if value is None:
        return "None"
    text = repr(value) if isinstance(value, str | bytes | int | float) else ""
    more = "…" if len(text) > _MOST_SHOWN else ""
    return f"{type(value).__name__} {text[:_MOST_SHOWN]}{more}".rstrip()


def checked_items(values: Iterable[Any], name: str, axes: tuple[int, ...] = (1,)) -> list[Any]:
    """Return a list of items called `name`, which may be any iterable with an order.

    An array may have these numbers of axes. Raises TypeError for anything else, such as one item.
    """
    wrong = str | bytes | bytearray | Mapping | Set
    if (
        isinstance(values, wrong)
        or not isinstance(values, Iterable)
        or getattr(values, "ndim", axes[0]) not in axes
    ):
        raise TypeError(f"expected a list of {name}. Received: {shown(values)}")
    return list(values)


def checked_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Return a list of texts, which are called `name`. Raises TypeError for anything else."""
    items = checked_items(texts, name)
    for number, text in enumerate(items, 1):
        if not isinstance(text, str):
            raise TypeError(f"expected {name}, each a str. Received: {shown(text)} as {number}.")
    return items


def checked_pairs(texts: Iterable[str], translations: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return texts and translations. Raises TypeError, and ValueError for different numbers."""
    sources, targets = checked_texts(texts), checked_texts(translations, "translations")
    if len(sources) != len(targets):
        raise ValueError(
            f"expected as many translations as texts, {len(sources)}. Received: {len(targets)}"
        )
    return sources, targets


def check_text(name: str, value: Any) -> None:
    """Raise TypeError for an argument that is no text."""
    if not isinstance(value, str):
        raise TypeError(f"expected {name} as str. Received: {shown(value)}")


def check_count(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Raise TypeError for an argument that is no whole number, ValueError outside its range."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected {name} as a whole number. Received: {shown(value)}")
    if not least <= value <= most:
        limit = f"{least} to {most}" if most < math.inf else f"at least {least}"
        raise ValueError(f"expected {name} of {limit}. Received: {value}")


def check_seconds(name: str, value: Any) -> None:
    """Raise TypeError for an argument that is no number, ValueError for a time outside gRPC's."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected {name} in seconds. Received: {shown(value)}")
    if not 0 < value <= MOST_SECONDS:
        raise ValueError(f"expected a {name} above 0, up to 1e9 seconds. Received: {value}")
