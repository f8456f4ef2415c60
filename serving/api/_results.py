"""The results of models, their metadata, and the division of texts into sentences."""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

from training.command.visible import visible
from training.data.letters import letters_of
from training.data.rules import ENDED, FULL_WIDTH_END, LINE_END, SENTENCE_END

_SENTENCE_END, _LINE_END = re.compile(f"({SENTENCE_END})"), re.compile(f"({LINE_END})")
_FULL_WIDTH_END, _ENDED = re.compile(FULL_WIDTH_END), re.compile(ENDED)
# A signature like `translate`. Models have it if their sources are no sentences, such as dates.
TRANSLATE_LINES = "translate_lines"


@dataclass(frozen=True)
class Translation:
    """The best translation of a text.

    Attributes:
        text: the translation.
        score: log-probability of the translation, divided by the length penalty.
        truncated: whether the text is longer than the model reads: its end is not translated.
        words: the words of the translation, each with the space in front of it. Empty if the model
            is from elsewhere.
        word_probabilities: for each word, the probability of its least probable token.
        unknown: the letters of the text that training never saw. The model invents their
            translation.
    """

    text: str
    score: float
    truncated: bool = False
    words: tuple[str, ...] = ()
    word_probabilities: tuple[float, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class Hypothesis:
    """One of the N best translations of a text, or of the N best readings of an image.

    `truncated` and `unknown` are as in `Translation`.
    """

    text: str
    score: float
    truncated: bool = False
    unknown: str = ""


@dataclass(frozen=True)
class Alignment:
    """A translation with its attention weights.

    `attention_weights[t][s]` is the weight of `source_tokens[s]` for `target_tokens[t]`. All other
    fields are as in `Translation`.
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
    """The log-probability of a given translation.

    Attributes:
        score: comparable with the `score` of a `Translation`.
        tokens: the tokens of the translation; the last is the end token.
        log_probs: the log-probability of each token, given the tokens before it.
        truncated: whether the text or the translation is longer than the model reads.
        unknown: as in `Translation`.
    """

    score: float
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    truncated: bool = False
    unknown: str = ""


@dataclass(frozen=True)
class Reading:
    """The text in an image; `score` is its log-probability, divided by the length penalty.

    `token_probabilities` has the probability of each of `tokens`. Older exports have neither.
    """

    text: str
    score: float
    tokens: tuple[str, ...] = ()
    token_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class Regions:
    """The text in an image with its attention weights.

    `attention_weights[t][row][column]` is the weight of a region of the image for `tokens[t]`; the
    regions form a grid over the image. `token_probabilities` is as in `Reading`.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    attention_weights: tuple[tuple[tuple[float, ...], ...], ...]
    token_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The probability of the outcome, and the attention weight of each event.

    `attention_weights` is empty for a model without attention. `truncated` says that the history
    has more events than the model reads: it reads the last events, and the values known before.
    """

    probability: float
    attention_weights: tuple[float, ...]
    truncated: bool = False


@dataclass(frozen=True)
class Metadata:
    """A served model: its name, its version, and the inputs and outputs of its signatures.

    `signatures[name]["inputs"][alias]` is dtype and shape, such as "string(?, ?)"; likewise
    `["outputs"]`.
    """

    model: str
    version: int
    signatures: dict[str, dict[str, dict[str, str]]]


def unique_letters(text: str) -> str:
    """Return the distinct letters of a text, each with its marks, in order."""
    return "".join(dict.fromkeys(letters_of(text)))


def unseen(letters: str) -> str:
    """Return the warning about letters that training never saw."""
    shown = visible(" ".join(letters_of(letters)))
    return f"training never saw {shown}. Do not trust the output for it"


def split_sentences(text: str, signatures: Container[str] = ()) -> list[tuple[str, str]]:
    """Return pairs of a sentence and the white space after it, in the order of the text.

    `signatures` are those of the model. If its sources are not sentences, the text is split at line
    ends only.
    """
    end = _LINE_END if TRANSLATE_LINES in signatures else _SENTENCE_END
    parts = end.split(text.strip())
    pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
    return [(sentence, gap) for sentence, gap in pairs if sentence]


def are_sentences(texts: Sequence[str], of_letters: bool) -> bool:
    """Return whether the sources of a model are sentences, so that a text may be split into them.

    If tokens are letters or symbols, half of the sources must end like sentences. Otherwise,
    sources are sentences unless more of them would be split than end like sentences.
    """
    ended = sum(bool(_ENDED.search(text.strip())) for text in texts)
    if of_letters:
        return 2 * ended >= max(1, len(texts))
    return ended >= sum(len(split_sentences(text)) > 1 for text in texts)


def join_sentences(pieces: Sequence[tuple[Translation, str]]) -> Translation:
    """Return one translation from those of sentences, each with the white space after its source.

    Line ends are kept; other white space becomes a space, or nothing after a full-width end. The
    score is the mean over the sentences. The result is truncated if a sentence is.
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
