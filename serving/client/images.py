"""Readers of images and other files: the clients, blocking and asyncio, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from serving.client.answers import (
    GRIDS,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    check_alike,
    read_hypotheses,
    read_outputs,
    text,
    unpadded,
)
from serving.client.errors import InvalidRequestError
from serving.client.file_kind import FileKind
from serving.client.file_kinds import kind_of
from serving.client.protobuf import Message, input_tensors
from serving.client.protocol import Endpoint, Steps
from serving.client.results import Hypothesis, Reading, Regions
from serving.client.transport import AsyncClient, Client, Question

T = TypeVar("T")


def read_readings(response: Message, count: int) -> list[Reading]:
    """Answers of the signature `read`, one for each image."""
    outputs = read_outputs(response, count, text=TEXT, score=NUMBER)
    if "token_probabilities" not in response.outputs:
        return [Reading(text(one), score) for one, score in zip(*outputs, strict=True)]
    outputs += read_outputs(response, count, tokens=TEXTS)
    sure = _read_probabilities(response, count, [len(padded) for padded in outputs[2]])
    found = []
    for one, score, padded, probabilities in zip(*outputs, sure, strict=True):
        tokens = unpadded(padded)
        found.append(Reading(text(one), score, tokens, probabilities[: len(tokens)]))
    return found


def read_other_readings(response: Message, count: int) -> list[list[Hypothesis]]:
    """Answers of the signature `nbest`: each image's texts, best first."""
    return read_hypotheses(response, count, "texts")


def read_regions(response: Message, count: int) -> list[Regions]:
    """Answers of the signature `regions`, without their padding."""
    outputs = read_outputs(
        response, count, text=TEXT, score=NUMBER, tokens=TEXTS, attention_weights=GRIDS
    )
    sure = _read_probabilities(response, count, [len(padded) for padded in outputs[2]])
    answers = []
    for one, score, padded, weights, probabilities in zip(*outputs, sure, strict=True):
        check_alike(("tokens", len(padded)), ("grids of attention_weights", len(weights)))
        tokens = unpadded(padded)
        grids = tuple(tuple(map(tuple, grid)) for grid in weights[: len(tokens)])
        answers.append(Regions(text(one), score, tokens, grids, probabilities[: len(tokens)]))
    return answers


def _read_probabilities(
    response: Message, count: int, lengths: Sequence[int]
) -> list[tuple[float, ...]]:
    """The probabilities of rows of so many tokens; none from models of before."""
    if "token_probabilities" not in response.outputs:
        return [()] * count
    (found,) = read_outputs(response, count, token_probabilities=NUMBERS)
    for length, row in zip(lengths, found, strict=True):
        check_alike(("tokens", length), ("token_probabilities", len(row)))
    return [tuple(row) for row in found]


class _Readers(Endpoint):
    """The methods of both clients of a reader."""

    @Question
    def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> Steps[list[Reading | InvalidRequestError]]:
        """The text in each image."""
        return self._read("read", images, read_readings, keep_errors)

    @Question
    def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> Steps[list[Regions | InvalidRequestError]]:
        """The text in each image, and where the model looked."""
        return self._read("regions", images, read_regions, keep_errors)

    @Question
    def nbest(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> Steps[list[list[Hypothesis] | InvalidRequestError]]:
        """Each image's texts, best first."""
        return self._read("nbest", images, read_other_readings, keep_errors)

    def _read(
        self, signature: str, given: Sequence[Any], read: Callable[[Any, int], list[T]], keep: bool
    ) -> Steps[list[T | InvalidRequestError]]:
        if isinstance(given, str | bytes):
            raise TypeError("expected a list of images. Received: one")
        kind = kind_of(given[0] if given else None)
        found = yield from self._each(kind, signature, [kind.row(one) for one in given], read)
        for number, answer in enumerate(found):
            if isinstance(answer, InvalidRequestError):
                path = given[number]
                name = f" ({path})" if isinstance(path, str | Path) else ""
                error = InvalidRequestError(
                    f"{kind.name} {number + 1}{name}: {answer}", answer.code
                )
                if not keep:
                    raise error
                found[number] = error
        return found

    def _each(
        self, kind: FileKind, signature: str, rows: list[Any], read: Callable[[Any, int], list[T]]
    ) -> Steps[list[T | InvalidRequestError]]:
        """Answer each row; where one of several is broken, the others are sent without it."""

        def write(batch: Sequence[Any]) -> dict[str, Message]:
            return input_tensors(kind.inputs(batch))

        try:
            found = yield from self.predict(signature, rows, write, read)
        except InvalidRequestError as error:
            if len(rows) == 1:
                return [error]
        else:
            return list(found)
        half = len(rows) // 2
        first = yield from self._each(kind, signature, rows[:half], read)
        return first + (yield from self._each(kind, signature, rows[half:], read))


class Reader(_Readers, Client):
    """A reader of images on a model server; arguments as of `serving.client.protocol.Endpoint`.

    An image is a path, the bytes of a PNG or JPEG file, or an array of uint8; models may read other
    kinds of files, see `serving.client.file_kinds`. A broken one is an
    InvalidRequestError that names it; with `keep_errors` that stands in its place, and the others
    are read. Use as a context manager, or `close()`. Threads may share it.
    """


class AsyncReader(_Readers, AsyncClient):
    """`Reader` for asyncio: the same arguments, its methods are coroutines."""
