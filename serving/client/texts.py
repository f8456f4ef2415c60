"""Translators: the clients, blocking and asyncio, their requests and their answers."""

from collections.abc import Sequence
from typing import Any

from serving.client import protobuf
from serving.client.answers import (
    FLAG,
    MATRIX,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    check_alike,
    read_hypotheses,
    read_outputs,
    read_tokens,
    text,
    unpadded,
)
from serving.client.arguments import checked_pairs, checked_texts
from serving.client.protobuf import Message
from serving.client.protocol import Endpoint, Steps
from serving.client.results import (
    Alignment,
    Hypothesis,
    Score,
    Translation,
    join_sentences,
    split_sentences,
    unique_letters,
)
from serving.client.transport import AsyncClient, Client, Question


def write_texts(texts: Sequence[str]) -> dict[str, Message]:
    """The input `text` of a request."""
    return {"text": text_tensor(texts)}


def text_tensor(texts: Sequence[str]) -> Message:
    """TensorProto of texts. One with a lone surrogate has no UTF-8 form: that becomes "?"."""
    return protobuf.string_tensor([text.encode("utf-8", "replace") for text in texts])


def read_translations(response: Message, count: int) -> list[Translation]:
    """Answers of the signature `translate`, one for each text."""
    outputs = read_outputs(response, count, translation=TEXT, score=NUMBER, truncated=FLAG)
    words, letters = _read_words(response, count), [b""] * count
    if "unknown" in response.outputs:
        (letters,) = read_outputs(response, count, unknown=TEXT)
    return [
        Translation(
            text(best), score, truncated, parts, probabilities, unique_letters(text(unknown))
        )
        for best, score, truncated, (parts, probabilities), unknown in zip(
            *outputs, words, letters, strict=True
        )
    ]


def _read_words(response: Message, count: int) -> list[tuple[Any, ...]]:
    """The words of each translation and their probabilities, where the model tells them."""
    if "words" not in response.outputs:
        return [((), ())] * count
    return read_tokens(response, count, "words", word_probabilities=NUMBERS)


def read_nbest(response: Message, count: int) -> list[list[Hypothesis]]:
    """Answers of the signature `nbest`: each text's translations, best first."""
    return read_hypotheses(response, count, "translations")


def read_alignments(response: Message, count: int) -> list[Alignment]:
    """Answers of the signature `align`, without their padding."""
    best, sources = read_outputs(response, count, translation=TEXT, source_tokens=TEXTS)
    targets = read_tokens(response, count, "target_tokens", attention_weights=MATRIX)
    words = _read_words(response, count)
    alignments = []
    for one, padded, (target, weights), of_words in zip(best, sources, targets, words, strict=True):
        for row in weights[:1]:
            check_alike(("source_tokens", len(padded)), ("attention_weights a row", len(row)))
        source = unpadded(padded)
        rows = tuple(tuple(row[: len(source)]) for row in weights)
        alignments.append(Alignment(text(one), source, target, rows, *of_words))
    return alignments


def read_scores(response: Message, count: int) -> list[Score]:
    """Answers of the signature `score`, without their padding."""
    scores, truncated = read_outputs(response, count, score=NUMBER, truncated=FLAG)
    rows = read_tokens(response, count, "tokens", log_probs=NUMBERS)
    return [
        Score(score, tokens, log_probs, cut)
        for score, (tokens, log_probs), cut in zip(scores, rows, truncated, strict=True)
    ]


class _Translators(Endpoint):
    """The methods of both clients of a translator."""

    @Question
    def translate(self, texts: Sequence[str], split: bool = False) -> Steps[list[Translation]]:
        """The best translation of each text; with `split`, sentence by sentence."""
        write, read = write_texts, read_translations
        if not split:
            return (yield from self.predict("translate", checked_texts(texts), write, read))
        pieces = [split_sentences(text) for text in checked_texts(texts)]
        sentences = [sentence for text in pieces for sentence, _ in text]
        translations = iter((yield from self.predict("translate", sentences, write, read)))
        return [join_sentences([(next(translations), gap) for _, gap in text]) for text in pieces]

    @Question
    def nbest(self, texts: Sequence[str]) -> Steps[list[list[Hypothesis]]]:
        """Each text's translations, best first, as many as the model was exported with."""
        return self.predict("nbest", checked_texts(texts), write_texts, read_nbest)

    @Question
    def align(self, texts: Sequence[str]) -> Steps[list[Alignment]]:
        """Each text's translation with its attention weights."""
        return self.predict("align", checked_texts(texts), write_texts, read_alignments)

    @Question
    def score(self, texts: Sequence[str], translations: Sequence[str]) -> Steps[list[Score]]:
        """The probability of a given translation of each text, token by token."""

        def write(pairs: Sequence[tuple[str, str]]) -> dict[str, Message]:
            first, second = zip(*pairs, strict=True)
            return {"text": text_tensor(first), "translation": text_tensor(second)}

        pairs = list(zip(*checked_pairs(texts, translations), strict=True))
        return self.predict("score", pairs, write, read_scores, lambda pair: sum(map(len, pair)))


class Translator(_Translators, Client):
    """A translator on a model server; arguments as of `serving.client.protocol.Endpoint`.

    Its methods raise a ServingError. Use as a context manager, or `close()`. Threads may share it.
    """


class AsyncTranslator(_Translators, AsyncClient):
    """`Translator` for asyncio: the same arguments, its methods are coroutines."""
