"""Requests to a translator, and its answers: no connection, no state."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from serving.client import protobuf as messages
from serving.client.errors import UnexpectedResponseError


@dataclass(frozen=True)
class Translation:
    """A text's best translation.

    `score` is the model's: log-probability over the length penalty. `truncated` says that the text
    was longer than the model reads, and that its end is not translated.
    """

    text: str
    score: float
    truncated: bool = False


@dataclass(frozen=True)
class Hypothesis:
    """One of a text's several translations."""

    text: str
    score: float


@dataclass(frozen=True)
class Alignment:
    """A translation with its attention weights.

    `attention_weights[t][s]` is the weight of `source_tokens[s]` as `target_tokens[t]` was written.
    """

    translation: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    attention_weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Score:
    """How probable a model finds a given translation.

    `score` compares with a `Translation`'s. `log_probs` has one number for each of `tokens`, of
    which the last is the end. `truncated` says that the text or the translation was longer than
    the model reads.
    """

    score: float
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    truncated: bool = False


def write_texts(texts: Sequence[str]) -> dict[str, Message]:
    """The input `text` of a request."""
    return {"text": text_tensor(texts)}


def write_pairs(pairs: Sequence[tuple[str, str]]) -> dict[str, Message]:
    """The inputs `text` and `translation` of a request."""
    texts, translations = zip(*pairs, strict=True)
    return {"text": text_tensor(texts), "translation": text_tensor(translations)}


def text_tensor(texts: Sequence[str]) -> Message:
    """TensorProto of texts. One with a lone surrogate has no UTF-8 form: that becomes "?"."""
    return messages.string_tensor([text.encode("utf-8", "replace") for text in texts])


@dataclass(frozen=True)
class Output:
    """What an output of a signature must be: `rank` counts the axis of the batch."""

    dtype: int
    rank: int


_TEXT, _TEXTS = Output(messages.STRING, 1), Output(messages.STRING, 2)
_NUMBER, _NUMBERS, _MATRIX = (Output(messages.FLOAT, rank) for rank in (1, 2, 3))
_FLAG = Output(messages.BOOL, 1)


def read_outputs(response: Message, count: int, **expected: Output) -> list[list[Any]]:
    """The values of a PredictResponse's outputs, a list for each of `expected`, in its order.

    Args:
        response: the PredictResponse.
        count: rows of the batch.
        **expected: what each output must be, by name.

    Raises UnexpectedResponseError where one is missing or something else.
    """
    found = []
    for name, output in expected.items():
        if name not in response.outputs:
            raise UnexpectedResponseError(
                f"the answer has no output {name!r}; it has {', '.join(sorted(response.outputs))}:"
                " is this the right kind of model?"
            )
        tensor = response.outputs[name]
        try:
            shape = messages.tensor_shape(tensor)
            if len(shape) != output.rank or tensor.dtype != output.dtype:
                raise ValueError(
                    f"data type {tensor.dtype} of shape {shape} was received; expected data type "
                    f"{output.dtype} of {output.rank} dimensions"
                )
            if shape[0] != count:
                raise ValueError(f"{shape[0]} rows were received for a batch of {count}")
            found.append(messages.tensor_values(tensor))
        except ValueError as error:
            raise UnexpectedResponseError(f"the answer's output {name!r}: {error}") from error
    return found


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _shaped_alike(*names_and_lengths: tuple[str, int]) -> None:
    """Raise UnexpectedResponseError where the outputs of one text differ in length."""
    if len({length for _, length in names_and_lengths}) > 1:
        said = ", ".join(f"{length} {name}" for name, length in names_and_lengths)
        raise UnexpectedResponseError(f"the answer to a text has {said}")


def read_translations(response: Message, count: int) -> list[Translation]:
    """Answers of the signature `translate`, one for each text."""
    outputs = read_outputs(response, count, translation=_TEXT, score=_NUMBER, truncated=_FLAG)
    return [Translation(_text(text), *rest) for text, *rest in zip(*outputs, strict=True)]


def read_nbest(response: Message, count: int) -> list[list[Hypothesis]]:
    """Answers of the signature `nbest`: each text's translations, best first."""
    answers = []
    outputs = read_outputs(response, count, translations=_TEXTS, scores=_NUMBERS)
    for texts, scores in zip(*outputs, strict=True):
        _shaped_alike(("translations", len(texts)), ("scores", len(scores)))
        answers.append(
            [Hypothesis(_text(text), score) for text, score in zip(texts, scores, strict=True)]
        )
    return answers


def read_alignments(response: Message, count: int) -> list[Alignment]:
    """Answers of the signature `align`, without their padding."""
    outputs = read_outputs(
        response,
        count,
        translation=_TEXT,
        source_tokens=_TEXTS,
        target_tokens=_TEXTS,
        attention_weights=_MATRIX,
    )
    alignments = []
    for text, source, target, weights in zip(*outputs, strict=True):
        _shaped_alike(("target_tokens", len(target)), ("rows of attention_weights", len(weights)))
        for row in weights[:1]:
            _shaped_alike(("source_tokens", len(source)), ("attention_weights a row", len(row)))
        source, target = _without_padding(source), _without_padding(target)
        rows = tuple(tuple(row[: len(source)]) for row in weights[: len(target)])
        alignments.append(Alignment(_text(text), source, target, rows))
    return alignments


def read_scores(response: Message, count: int) -> list[Score]:
    """Answers of the signature `score`, without their padding."""
    outputs = read_outputs(
        response, count, score=_NUMBER, tokens=_TEXTS, log_probs=_NUMBERS, truncated=_FLAG
    )
    scores = []
    for score, tokens, log_probs, truncated in zip(*outputs, strict=True):
        _shaped_alike(("tokens", len(tokens)), ("log_probs", len(log_probs)))
        tokens = _without_padding(tokens)
        scores.append(Score(score, tokens, tuple(log_probs[: len(tokens)]), truncated))
    return scores


def _without_padding(tokens: list[bytes]) -> tuple[str, ...]:
    """Tokens up to the first that is empty."""
    length = tokens.index(b"") if b"" in tokens else len(tokens)
    return tuple(_text(token) for token in tokens[:length])


# A full stop ends a sentence before white space, a Chinese or Japanese one anywhere.
_BOUNDARY = re.compile(
    r"""((?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+"""
    r"""|(?<=[。！？])(?![。！？”’」』）])\s*|(?<=[。！？][”’」』）])\s*|\s*\n\s*)"""
)
_FULL_WIDTH_END = re.compile(r"[。！？][”’」』）]*$")


def split_sentences(text: str) -> list[tuple[str, str]]:
    """(sentence, white space after it) of a text, in order."""
    parts = _BOUNDARY.split(text.strip())
    pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
    return [(sentence, gap) for sentence, gap in pairs if sentence]


def join_sentences(pieces: Sequence[tuple[Translation, str]]) -> Translation:
    """One translation of sentences and the white space after each.

    The score is the mean of the sentences', and it is truncated where any of them is.
    """
    if not pieces:
        return Translation("", 0.0)
    text = ""
    for number, (piece, gap) in enumerate(pieces, 1):
        text += piece.text
        if number < len(pieces):
            if "\n" in gap:
                text += gap
            elif not _FULL_WIDTH_END.search(piece.text):
                text += " "
    score = sum(piece.score for piece, _ in pieces) / len(pieces)
    return Translation(text, score, any(piece.truncated for piece, _ in pieces))
