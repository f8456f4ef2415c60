"""Clients of translators, readers and models of histories.

A method makes a `Query`: its arguments, the function that writes them into a request, and the
function that reads the response. `predict` sends it, blocking or in asyncio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from serving.api._arguments import checked_items, checked_pairs, checked_texts
from serving.api._errors import InvalidRequestError
from serving.api._histories import TIME, History, history_columns, padded_columns
from serving.api._image_files import INPUT, image_file
from serving.api._results import (
    Alignment,
    Hypothesis,
    Metadata,
    Prediction,
    Reading,
    Regions,
    Score,
    Translation,
    join_sentences,
    split_sentences,
    unique_letters,
)
from serving.client._protobuf import (
    Message,
    check_alike,
    float_tensor,
    read_hypotheses,
    read_rows,
    string_tensor,
    unpadded,
)
from serving.client._protocol import Query
from serving.client._transport import AsyncClient, Client

T = TypeVar("T")
_WORDS = "words", "word_probabilities"
_TOKENS = "tokens", "token_probabilities"
_Pieces = list[list[tuple[str, str]]]  # of each text, sentences and the white space after each


class Translator(Client):
    """A translator on a model server. See `Client` for its arguments.

    Its methods raise ServingError. Use as a context manager, or call `close()`. Thread-safe.
    """

    def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """Return the best translation of each text; `split` translates each sentence separately."""
        if not split:
            return self.predict(_translate(texts))
        pieces = _pieces(texts, self.metadata())
        return _joined(pieces, self.predict(_translate(_sentences(pieces))))

    def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """Return the N best translations of each text, best first; the export sets N."""
        return self.predict(_nbest(texts))

    def align(self, texts: Sequence[str]) -> list[Alignment]:
        """Return the translation of each text with its attention weights."""
        return self.predict(_align(texts))

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[Score]:
        """Return the probability of a given translation of each text, token by token."""
        return self.predict(_score(texts, translations))


class AsyncTranslator(AsyncClient):
    """`Translator` for asyncio: the arguments are the same, the methods are coroutines."""

    async def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """Return the best translation of each text; `split` translates each sentence separately."""
        if not split:
            return await self.predict(_translate(texts))
        pieces = _pieces(texts, await self.metadata())
        return _joined(pieces, await self.predict(_translate(_sentences(pieces))))

    async def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """Return the N best translations of each text, best first; the export sets N."""
        return await self.predict(_nbest(texts))

    async def align(self, texts: Sequence[str]) -> list[Alignment]:
        """Return the translation of each text with its attention weights."""
        return await self.predict(_align(texts))

    async def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[Score]:
        """Return the probability of a given translation of each text, token by token."""
        return await self.predict(_score(texts, translations))


class Reader(Client):
    """A reader of images on a model server. See `Client` for its arguments.

    An image is a path, the bytes of a PNG or JPEG file, or a uint8 array `(H, W)` or `(H, W, C)`. A
    broken image raises an InvalidRequestError that names it; with `keep_errors` the error is
    returned instead of the image's answer, and the other images are read. Use as a context manager,
    or call `close()`. Thread-safe.
    """

    def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Reading | InvalidRequestError]:
        """Return the text in each image."""
        images = _images(images)
        return _named(self.predict(_read(images)), images, keep_errors)

    def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Regions | InvalidRequestError]:
        """Return the text in each image with its attention weights over the image."""
        images = _images(images)
        return _named(self.predict(_regions(images)), images, keep_errors)

    def nbest(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[list[Hypothesis] | InvalidRequestError]:
        """Return the N best texts of each image, best first."""
        images = _images(images)
        return _named(self.predict(_nbest_texts(images)), images, keep_errors)


class AsyncReader(AsyncClient):
    """`Reader` for asyncio: the arguments are the same, the methods are coroutines."""

    async def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Reading | InvalidRequestError]:
        """Return the text in each image."""
        images = _images(images)
        return _named(await self.predict(_read(images)), images, keep_errors)

    async def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Regions | InvalidRequestError]:
        """Return the text in each image with its attention weights over the image."""
        images = _images(images)
        return _named(await self.predict(_regions(images)), images, keep_errors)

    async def nbest(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[list[Hypothesis] | InvalidRequestError]:
        """Return the N best texts of each image, best first."""
        images = _images(images)
        return _named(await self.predict(_nbest_texts(images)), images, keep_errors)


class Predictor(Client):
    """A model of histories on a model server. See `Client` for its arguments.

    A history is a dict of columns. Each column, including "time", is a list with one value for each
    event: see `history_columns`. Use as a context manager, or call `close()`. Thread-safe.
    """

    def outcome(self, histories: Sequence[History], ignore: bool = False) -> list[Prediction]:
        """Return the outcome's probability for each history; `ignore` skips unknown columns."""
        histories = checked_items(histories, "histories")
        query = _predict(histories, self.metadata(), ignore)
        return _without_padding(query, self.predict(query))


class AsyncPredictor(AsyncClient):
    """`Predictor` for asyncio: the arguments are the same, the methods are coroutines."""

    async def outcome(self, histories: Sequence[History], ignore: bool = False) -> list[Prediction]:
        """Return the outcome's probability for each history; `ignore` skips unknown columns."""
        histories = checked_items(histories, "histories")
        query = _predict(histories, await self.metadata(), ignore)
        return _without_padding(query, await self.predict(query))


# Texts


def _translate(texts: Sequence[str]) -> Query[str, Translation]:
    return Query("translate", checked_texts(texts), _write_texts, _read_translations)


def _nbest(texts: Sequence[str]) -> Query[str, list[Hypothesis]]:
    read = partial(read_hypotheses, name="translations")
    return Query("nbest", checked_texts(texts), _write_texts, read)


def _align(texts: Sequence[str]) -> Query[str, Alignment]:
    return Query("align", checked_texts(texts), _write_texts, _read_alignments)


def _score(texts: Sequence[str], translations: Sequence[str]) -> Query[tuple[str, str], Score]:
    pairs = list(zip(*checked_pairs(texts, translations), strict=True))
    return Query("score", pairs, _write_pairs, _read_scores, lambda pair: sum(map(len, pair)))


def _pieces(texts: Sequence[str], metadata: Metadata) -> _Pieces:
    return [split_sentences(text, metadata.signatures) for text in checked_texts(texts)]


def _sentences(pieces: _Pieces) -> list[str]:
    return [sentence for text in pieces for sentence, _ in text]


def _joined(pieces: _Pieces, translations: Sequence[Translation]) -> list[Translation]:
    """Return the translation of each text from those of its sentences."""
    left = iter(translations)
    return [join_sentences([(next(left), gap) for _, gap in text]) for text in pieces]


def _write_texts(texts: Sequence[str], name: str = "text") -> dict[str, Message]:
    """Return texts as an input `(B,)` of a request; a lone surrogate becomes "?"."""
    return {name: string_tensor([text.encode("utf-8", "replace") for text in texts])}


def _read_translations(response: Message, count: int) -> list[Translation]:
    """Return the answers of the signature `translate`, one for each text."""
    names = "translation", "score", "truncated"
    answers = []
    for row in read_rows(response, count, *names, optional=(*_WORDS, "unknown")):
        words, probabilities = unpadded(row, *_WORDS)
        best, score, cut = (row[name] for name in names)
        unknown = unique_letters(row.get("unknown", ""))  # older exports repeat letters
        answers.append(Translation(best, score, cut, words, probabilities, unknown))
    return answers


def _read_alignments(response: Message, count: int) -> list[Alignment]:
    """Return the answers of the signature `align`, without their padding."""
    names = "translation", "source_tokens", "target_tokens", "attention_weights"
    alignments = []
    for row in read_rows(response, count, *names, optional=(*_WORDS, "truncated", "unknown")):
        if row["attention_weights"]:
            row["weights of a token"] = row["attention_weights"][0]
            check_alike(row, "source_tokens", "weights of a token")
        (source,) = unpadded(row, "source_tokens")
        target, weights = unpadded(row, "target_tokens", "attention_weights")
        weights = tuple(tuple(each[: len(source)]) for each in weights)
        more = *unpadded(row, *_WORDS), row.get("truncated", False), row.get("unknown", "")
        alignments.append(Alignment(row["translation"], source, target, weights, *more))
    return alignments


def _read_scores(response: Message, count: int) -> list[Score]:
    """Return the answers of the signature `score`, without their padding."""
    scores = []
    names = "score", "tokens", "log_probs", "truncated"
    for row in read_rows(response, count, *names, optional=["unknown"]):
        tokens, log_probs = unpadded(row, "tokens", "log_probs")
        read = row["truncated"], row.get("unknown", "")
        scores.append(Score(row["score"], tokens, log_probs, *read))
    return scores


def _write_pairs(pairs: Sequence[tuple[str, str]]) -> dict[str, Message]:
    """Return texts and translations as two inputs `(B,)` of a request."""
    first, second = zip(*pairs, strict=True)
    return _write_texts(first) | _write_texts(second, "translation")


# Images


def _read(images: Sequence[Any]) -> Query[bytes, Reading]:
    return Query(
        "read", list(map(image_file, images)), _write_files, _read_readings, keeps_errors=True
    )


def _regions(images: Sequence[Any]) -> Query[bytes, Regions]:
    return Query(
        "regions", list(map(image_file, images)), _write_files, _read_regions, keeps_errors=True
    )


def _nbest_texts(images: Sequence[Any]) -> Query[bytes, list[Hypothesis]]:
    read = partial(read_hypotheses, name="texts")
    return Query("nbest", list(map(image_file, images)), _write_files, read, keeps_errors=True)


def _images(images: Sequence[Any]) -> list[Any]:
    return checked_items(images, "images", axes=(1, 4))


def _named(
    answers: list[T], images: Sequence[Any], keep_errors: bool
) -> list[T | InvalidRequestError]:
    """Return the answers, with the image's number and path in errors; raise one if not kept."""
    named: list[T | InvalidRequestError] = []
    for number, answer in enumerate(answers):
        if not isinstance(answer, InvalidRequestError):
            named.append(answer)
            continue
        path = images[number]
        name = f" ({path})" if isinstance(path, str | Path) else ""
        error = InvalidRequestError(f"image {number + 1}{name}: {answer}", answer.code)
        if not keep_errors:
            raise error
        named.append(error)
    return named


def _write_files(files: Sequence[bytes]) -> dict[str, Message]:
    """Return files of images as an input `(B,)` of a request."""
    return {INPUT: string_tensor(files)}


def _read_readings(response: Message, count: int) -> list[Reading]:
    """Return the answers of the signature `read`, one for each image."""
    # Models from elsewhere may not return the probabilities of tokens.
    more = _TOKENS if "token_probabilities" in response.outputs else ()
    return [
        Reading(row["text"], row["score"], *unpadded(row, *_TOKENS))
        for row in read_rows(response, count, "text", "score", *more)
    ]


def _read_regions(response: Message, count: int) -> list[Regions]:
    """Return the answers of the signature `regions`, without their padding."""
    names = "text", "score", "tokens", "attention_weights"
    answers = []
    for row in read_rows(response, count, *names, optional=_TOKENS[1:], weights=4):
        tokens, weights, probabilities = unpadded(row, "tokens", "attention_weights", _TOKENS[1])
        grids = tuple(tuple(map(tuple, grid)) for grid in weights)
        answers.append(Regions(row["text"], row["score"], tokens, grids, probabilities))
    return answers


# Histories

_Row = dict[str, list[float]]


def _predict(
    histories: Sequence[History], metadata: Metadata, ignore: bool
) -> Query[_Row, Prediction]:
    inputs = list(metadata.signatures.get("predict", {}).get("inputs", {TIME: ""}))
    rows = [history_columns(history, inputs, ignore) for history in histories]
    return Query("predict", rows, _write_rows, _read_predictions, lambda row: len(row[TIME]))


def _write_rows(rows: Sequence[_Row]) -> dict[str, Message]:
    """Return columns `(B, T)` as inputs of a request."""
    return {name: float_tensor(column) for name, column in padded_columns(rows).items()}


def _read_predictions(response: Message, count: int) -> list[Prediction]:
    """Return the answers of the signature `predict`, one for each history; weights keep padding."""
    weights, cut = "attention_weights", "truncated"
    return [
        Prediction(row["probability"], tuple(row.get(weights, ())), row.get("truncated", False))
        for row in read_rows(response, count, "probability", optional=[weights, cut], weights=2)
    ]


def _without_padding(
    query: Query[_Row, Prediction], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Return the predictions with a weight for each event of their histories."""
    return [
        replace(answer, attention_weights=answer.attention_weights[: len(row[TIME])])
        for answer, row in zip(predictions, query.rows, strict=True)
    ]
