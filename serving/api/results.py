"""Answers of models, the metadata of one, and texts of several sentences."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from serving.api.printing import printable
from training.data.rules import FULL_WIDTH_END, SENTENCE_END

_SENTENCE_END, _FULL_WIDTH_END = re.compile(SENTENCE_END), re.compile(FULL_WIDTH_END)


@dataclass(frozen=True)
class Translation:
    """A text's best translation.

    `score` is the model's: log-probability over the length penalty. `truncated` says that the text
    was longer than the model reads, and that its end is not translated. `words` are those of the
    translation, each with the space in front of it, and `word_probabilities` how sure the model is
    of each: the probability of its least probable token. Models of others may have neither.
    `unknown` has the letters of the text that training never saw: what is said of them is invented.
    """

    text: str
    score: float
    truncated: bool = False
    words: tuple[str, ...] = ()
    word_probabilities: tuple[float, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class Hypothesis:
    """One of a text's several translations, or of an image's several readings.

    `truncated` and `unknown` are those of a `Translation` of the text.
    """

    text: str
    score: float
    truncated: bool = False
    unknown: str = ""


@dataclass(frozen=True)
class Alignment:
    """A translation with its attention weights.

    `attention_weights[t][s]` is the weight of `source_tokens[s]` as `target_tokens[t]` was written.
    All other fields are those of a `Translation`.
    """

    translation: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    attention_weights: tuple[tuple[float, ...], ...]
    words: tuple[str, ...] = ()
    word_probabilities: tuple[float, ...] = ()
    truncated: bool = False
    unknown: str = ""


@dataclass(frozen=True)
class Score:
    """How probable a model finds a given translation.

    `score` compares with a `Translation`'s. `log_probs` has one number for each of `tokens`, of
    which the last is the end. `truncated` says that the text or the translation was longer than
    the model reads; `unknown` is that of a `Translation`.
    """

    score: float
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    truncated: bool = False
    unknown: str = ""


@dataclass(frozen=True)
class Reading:
    """The text in an image; `score` is its log-probability over the length penalty.

    `token_probabilities` says how sure the model is of each of `tokens`; models that were exported
    before have none.
    """

    text: str
    score: float
    tokens: tuple[str, ...] = ()
    token_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class Regions:
    """The text in an image, and where the model looked.

    `attention_weights[t][row][column]` is the weight of a region as `tokens[t]` was written; the
    regions are a grid over the image. `token_probabilities` are those of a `Reading`.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    attention_weights: tuple[tuple[tuple[float, ...], ...], ...]
    token_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """How probable the outcome is, and the weight of each event; none of a model without any.

    `truncated` says that the history has more events than the model reads, its last ones; of those
    before it reads what was known.
    """

    probability: float
    attention_weights: tuple[float, ...]
    truncated: bool = False


@dataclass(frozen=True)
class Metadata:
    """A served model: its version, and the inputs and outputs of each signature.

    `signatures[name]["inputs" or "outputs"][alias]` reads like `string(?, ?)`.
    """

    model: str
    version: int
    signatures: dict[str, dict[str, dict[str, str]]]


def unique_letters(text: str) -> str:
    """Return the letters of a text, each once."""
    return "".join(dict.fromkeys(text))


def unseen(letters: str) -> str:
    """Return the warning about letters that training never saw."""
    return f"training never saw {' '.join(map(printable, letters))}: what is said of it is invented"


def split_sentences(text: str) -> list[tuple[str, str]]:
    """Return the sentences of a text in order, each with the white space after it."""
    parts = _SENTENCE_END.split(text.strip())
    pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
    return [(sentence, gap) for sentence, gap in pairs if sentence]


def join_sentences(pieces: Sequence[tuple[Translation, str]]) -> Translation:
    """Join translations of sentences, each with the white space after it, to one.

    The score is the mean of the sentences'; the whole is truncated where a sentence is.
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
    unknown = unique_letters("".join(piece.unknown for piece, _ in pieces))
    truncated = any(piece.truncated for piece, _ in pieces)
    return Translation(text, score, truncated, unknown=unknown)
