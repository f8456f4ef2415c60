"""Checks the arguments of clients before a request is sent. Errors are one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

MOST_SECONDS = 1e9  # of a deadline; gRPC counts nanoseconds since 1970 in 63 bits
MOST_RETRIES = 4  # gRPC makes five attempts at most
_MOST_SHOWN = 60  # characters of a wrong argument in an error


def shown(value: Any) -> str:
    """Return a wrong argument as text for an error message."""
    if value is None:
        return "None"
    text = repr(value) if isinstance(value, str | bytes | int | float) else ""
    more = "…" if len(text) > _MOST_SHOWN else ""
    return f"{type(value).__name__} {text[:_MOST_SHOWN]}{more}".rstrip()


def checked_items(values: Iterable[Any], name: str, axes: tuple[int, ...] = (1,)) -> list[Any]:
    """Return the items of an ordered iterable as a list.

    Args:
        values: any iterable with an order.
        name: what errors call the items.
        axes: the numbers of axes that an array may have.

    Raises TypeError for anything else, such as a single item.
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
    """Return texts as a list; errors call them `name`. Raises TypeError for anything else."""
    items = checked_items(texts, name)
    for number, text in enumerate(items, 1):
        if not isinstance(text, str):
            raise TypeError(f"expected {name}, each a str. Received: {shown(text)} as {number}.")
    return items


def checked_pairs(texts: Iterable[str], translations: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return texts and translations as lists.

    Raises TypeError for anything but texts, ValueError if their numbers differ.
    """
    sources, targets = checked_texts(texts), checked_texts(translations, "translations")
    if len(sources) != len(targets):
        raise ValueError(
            f"expected as many translations as texts, {len(sources)}. Received: {len(targets)}"
        )
    return sources, targets


def check_text(name: str, value: Any) -> None:
    """Raise TypeError if an argument is not a str."""
    if not isinstance(value, str):
        raise TypeError(f"expected {name} as str. Received: {shown(value)}")


def check_count(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Raise TypeError for anything but a whole number, ValueError for a number out of range."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected {name} as a whole number. Received: {shown(value)}")
    if not least <= value <= most:
        limit = f"{least} to {most}" if most < math.inf else f"at least {least}"
        raise ValueError(f"expected {name} of {limit}. Received: {value}")


def check_seconds(name: str, value: Any) -> None:
    """Raise TypeError for anything but a number, ValueError for a time that gRPC cannot wait."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected {name} in seconds. Received: {shown(value)}")
    if not 0 < value <= MOST_SECONDS:
        raise ValueError(f"expected a {name} above 0, up to 1e9 seconds. Received: {value}")
