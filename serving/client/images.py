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
    Output,
    read_hypotheses,
    read_outputs,
    read_tokens,
    text,
)
from serving.client.arguments import checked_items
from serving.client.errors import InvalidRequestError
from serving.client.file_kinds import FileKind, kind_of
from serving.client.protobuf import Message, input_tensors
from serving.client.protocol import Endpoint, Steps
from serving.client.results import Hypothesis, Reading, Regions
from serving.client.transport import AsyncClient, Client, Question

T = TypeVar("T")


def read_readings(response: Message, count: int) -> list[Reading]:
    """Answers of the signature `read`, one for each image."""
    outputs = read_outputs(response, count, text=TEXT, score=NUMBER)
    optional = _probabilities(response)
    tokens = read_tokens(response, count, "tokens", **optional) if optional else [()] * count
    return [
        Reading(text(best), score, *of_tokens)
        for best, score, of_tokens in zip(*outputs, tokens, strict=True)
    ]


def read_other_readings(response: Message, count: int) -> list[list[Hypothesis]]:
    """Answers of the signature `nbest`: each image's texts, best first."""
    return read_hypotheses(response, count, "texts")


def read_regions(response: Message, count: int) -> list[Regions]:
    """Answers of the signature `regions`, without their padding."""
    outputs = read_outputs(response, count, text=TEXT, score=NUMBER)
    of_tokens = {"attention_weights": GRIDS, **_probabilities(response)}
    rows = read_tokens(response, count, "tokens", **of_tokens)
    answers = []
    for best, score, (tokens, weights, *probabilities) in zip(*outputs, rows, strict=True):
        grids = tuple(tuple(map(tuple, grid)) for grid in weights)
        answers.append(Regions(text(best), score, tokens, grids, *probabilities))
    return answers


def _probabilities(response: Message) -> dict[str, Output]:
    """The output of tokens' probabilities, where the model has one."""
    return {"token_probabilities": NUMBERS} if "token_probabilities" in response.outputs else {}


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
        self, signature: str, images: Sequence[Any], read: Callable[[Any, int], list[T]], keep: bool
    ) -> Steps[list[T | InvalidRequestError]]:
        images = checked_items(images, "images", axes=(1, 4))
        kind = kind_of(images[0] if images else None)
        rows = [kind.row(image) for image in images]
        answers = yield from self._each(kind, signature, rows, read)
        for number, answer in enumerate(answers):
            if isinstance(answer, InvalidRequestError):
                path = images[number]
                name = f" ({path})" if isinstance(path, str | Path) else ""
                error = InvalidRequestError(
                    f"{kind.name} {number + 1}{name}: {answer}", answer.code
                )
                if not keep:
                    raise error
                answers[number] = error
        return answers

    def _each(
        self, kind: FileKind, signature: str, rows: list[Any], read: Callable[[Any, int], list[T]]
    ) -> Steps[list[T | InvalidRequestError]]:
        """Answer each row; where one of several is broken, the others are sent without it."""

        def write(batch: Sequence[Any]) -> dict[str, Message]:
            return input_tensors(kind.inputs(batch))

        try:
            return list((yield from self.predict(signature, rows, write, read)))
        except InvalidRequestError as error:
            if len(rows) == 1:
                return [error]
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
