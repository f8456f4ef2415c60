"""What is said to a translator and how its answers read: no connection, no state."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from serving import messages
from serving.errors import UnexpectedResponseError


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


def model_spec(model: str, version: int | None, label: str | None, signature: str = "") -> Message:
    """ModelSpec of a request; `version` and `label` exclude each other."""
    spec = messages.ModelSpec(name=model, signature_name=signature)
    if version is not None:
        spec.version.value = version
    if label is not None:
        spec.version_label = label
    return spec


def predict_request(spec: Message, texts: Sequence[str]) -> Message:
    """PredictRequest with the texts in the input `text`."""
    request = messages.PredictRequest(model_spec=spec)
    # A text with a lone surrogate has no UTF-8 form: such a code point becomes "?".
    encoded = [text.encode("utf-8", "replace") for text in texts]
    request.inputs["text"].CopyFrom(messages.string_tensor(encoded))
    return request


def _outputs(response: Message, names: Sequence[str], count: int) -> list[list[Any]]:
    found = []
    for name in names:
        if name not in response.outputs:
            raise UnexpectedResponseError(
                f"the answer has no output {name!r}; it has {', '.join(sorted(response.outputs))}:"
                " is this model a translator?"
            )
        try:
            values = messages.tensor_values(response.outputs[name])
        except ValueError as error:
            raise UnexpectedResponseError(f"the answer's output {name!r}: {error}") from error
        if not isinstance(values, list) or len(values) != count:
            raise UnexpectedResponseError(
                f"the answer's output {name!r} is not one entry for each of the {count} texts"
            )
        found.append(values)
    return found


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def read_translations(response: Message, count: int) -> list[Translation]:
    """Answers of the signature `translate`, one for each text."""
    outputs = _outputs(response, ("translation", "score", "truncated"), count)
    return [Translation(_text(text), *rest) for text, *rest in zip(*outputs, strict=True)]


def read_nbest(response: Message, count: int) -> list[list[Hypothesis]]:
    """Answers of the signature `nbest`: each text's translations, best first."""
    outputs = _outputs(response, ("translations", "scores"), count)
    return [
        [Hypothesis(_text(text), score) for text, score in zip(texts, scores, strict=True)]
        for texts, scores in zip(*outputs, strict=True)
    ]


def read_alignments(response: Message, count: int) -> list[Alignment]:
    """Answers of the signature `align`, without their padding."""
    names = ("translation", "source_tokens", "target_tokens", "attention_weights")
    alignments = []
    for text, source, target, weights in zip(*_outputs(response, names, count), strict=True):
        source_length = sum(token != b"" for token in source)
        target_length = sum(token != b"" for token in target)
        alignments.append(
            Alignment(
                _text(text),
                tuple(_text(token) for token in source[:source_length]),
                tuple(_text(token) for token in target[:target_length]),
                tuple(tuple(row[:source_length]) for row in weights[:target_length]),
            )
        )
    return alignments


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
