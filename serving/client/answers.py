"""The outputs of a server's response, checked for type, rank and length."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from serving.client import protobuf
from serving.client.errors import UnexpectedResponseError
from serving.client.protobuf import Message
from serving.client.results import Hypothesis


@dataclass(frozen=True)
class Output:
    """The type and rank that an output must have; `rank` counts the axis of the batch."""

    dtype: int
    rank: int


TEXT, TEXTS = Output(protobuf.STRING, 1), Output(protobuf.STRING, 2)
NUMBER, NUMBERS, MATRIX, GRIDS = (Output(protobuf.FLOAT, rank) for rank in (1, 2, 3, 4))
FLAG = Output(protobuf.BOOL, 1)


def read_outputs(response: Message, count: int, **expected: Output) -> list[list[Any]]:
    """The values of a PredictResponse's outputs, a list for each of `expected`, in its order.

    Args:
        response: the PredictResponse.
        count: rows of the batch.
        **expected: type and rank of each output, by name.

    Raises UnexpectedResponseError where one is missing or something else.
    """
    values = []
    for name, output in expected.items():
        if name not in response.outputs:
            raise UnexpectedResponseError(
                f"the answer has no output {name!r}; it has {', '.join(sorted(response.outputs))}:"
                " is this the right kind of model?"
            )
        tensor = response.outputs[name]
        try:
            shape = protobuf.tensor_shape(tensor)
            if len(shape) != output.rank or tensor.dtype != output.dtype:
                raise ValueError(
                    f"expected data type {output.dtype} of {output.rank} dimensions. Received: "
                    f"type {tensor.dtype} of shape {shape}"
                )
            if shape[0] != count:
                raise ValueError(f"expected {count} rows. Received: {shape[0]}")
            values.append(protobuf.tensor_values(tensor))
        except ValueError as error:
            raise UnexpectedResponseError(f"the answer's output {name!r}: {error}") from error
    return values


def read_hypotheses(response: Message, count: int, name: str) -> list[list[Hypothesis]]:
    """The texts of an output and their scores, best first."""
    answers = []
    outputs = read_outputs(response, count, **{name: TEXTS}, scores=NUMBERS)
    for texts, scores in zip(*outputs, strict=True):
        check_alike((name, len(texts)), ("scores", len(scores)))
        answers.append(
            [Hypothesis(text(best), score) for best, score in zip(texts, scores, strict=True)]
        )
    return answers


def text(value: bytes) -> str:
    """Return an output's string as text; bytes that are not UTF-8 become U+FFFD."""
    return value.decode("utf-8", "replace")


def unpadded(tokens: Iterable[bytes]) -> tuple[str, ...]:
    """Return the tokens before the first empty one, which is padding."""
    return tuple(map(text, itertools.takewhile(bool, tokens)))


def read_tokens(
    response: Message, count: int, tokens: str, **others: Output
) -> list[tuple[Any, ...]]:
    """Texts of each row, without padding, and what other outputs say of each of them.

    Args:
        response: the PredictResponse.
        count: rows of the batch.
        tokens: the name of the texts' output; an empty text is padding.
        **others: outputs with a value for each text, by name.

    Raises UnexpectedResponseError where they differ in length, or as `read_outputs`.
    """
    rows = []
    for row in zip(*read_outputs(response, count, **{tokens: TEXTS}, **others), strict=True):
        check_alike(*zip((tokens, *others), map(len, row), strict=True))
        padded, *each = row
        texts = unpadded(padded)
        rows.append((texts, *(tuple(values[: len(texts)]) for values in each)))
    return rows


def check_alike(*names_and_lengths: tuple[str, int]) -> None:
    """Raise UnexpectedResponseError where the outputs of one row differ in length."""
    if len({length for _, length in names_and_lengths}) > 1:
        lengths = ", ".join(f"{length} {name}" for name, length in names_and_lengths)
        raise UnexpectedResponseError(f"one answer has {lengths}")
