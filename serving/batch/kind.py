"""A kind of input, as a job uses it, and its items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

Function = Callable[..., dict[str, Any]]  # a signature of a SavedModel: tensors by name


@dataclass
class Item:
    """A line, an image or a history.

    Attributes:
        name: its name in the folder `bad`: the line itself, a file's name, an id.
        value: the model's input; None if it has an error.
        record: the output's fields that are known before the answer, then all of them.
        error: why there is no answer; "" if there is one.
        truncated: whether the value was longer than the model reads.
    """

    name: bytes
    value: Any = None
    record: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    truncated: bool = False


class Kind(Protocol):
    """A kind of input: a file of this folder each, and a line in `serving.batch.__main__`.

    Attributes:
        signature: of the model.
        window: items read at a time, of which those of like size share a batch.
    """

    signature: ClassVar[str]
    window: ClassVar[int]

    @property
    def field(self) -> str:
        """The key of the output, or of the input, that tells items apart."""

    def items(self, path: Path) -> Iterator[Item]:
        """Yield the items of an input."""

    def size(self, value: Any) -> int:
        """Return how long an item's value is."""

    def answer(self, function: Function, values: Sequence[Any]) -> Sequence[Any]:
        """Return what `record` takes of each value, or a ValueError, from a signature."""

    def record(self, answer: Any) -> dict[str, Any]:
        """Return what the output says of an answer."""


def outputs(found: dict[str, Any], *names: str) -> Iterator[tuple]:
    """Yield these outputs of a signature for each row."""
    return zip(*(found[name].numpy() for name in names), strict=True)
