"""Clients of translators, readers and models of histories: requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from serving.api.arguments import checked_items, checked_pairs, checked_texts
from serving.api.errors import InvalidRequestError
from serving.api.histories import TIME, History, history_columns, padded_columns
from serving.api.image_files import INPUT, image_file
from serving.api.results import (
    Alignment,
    Hypothesis,
    Prediction,
    Reading,
    Regions,
    Score,
    Translation,
    join_sentences,
    split_sentences,
    unique_letters,
)
from serving.client.protobuf import (
    Message,
    check_alike,
    float_tensor,
    read_hypotheses,
    read_rows,
    string_tensor,
    unpadded,
)
from serving.client.protocol import Endpoint, Steps
from serving.client.transport import AsyncClient, Client, rpc_method

T = TypeVar("T")
_WORDS = "words", "word_probabilities"
_TOKENS = "tokens", "token_probabilities"


def write_texts(texts: Sequence[str], name: str = "text") -> dict[str, Message]:
    """Return texts as an input `(B,)` of a request; a lone surrogate becomes "?"."""
    return {name: string_tensor([text.encode("utf-8", "replace") for text in texts])}


def read_translations(response: Message, count: int) -> list[Translation]:
    """Return the answers of the signature `translate`, one for each text."""
    names = "translation", "score", "truncated"
    answers = []
    for row in read_rows(response, count, *names, optional=(*_WORDS, "unknown")):
        words, probabilities = unpadded(row, *_WORDS)
        best, score, cut = (row[name] for name in names)
        unknown = unique_letters(row.get("unknown", ""))  # older exports repeat letters
        answers.append(Translation(best, score, cut, words, probabilities, unknown))
    return answers


def read_alignments(response: Message, count: int) -> list[Alignment]:
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


def read_scores(response: Message, count: int) -> list[Score]:
    """Return the answers of the signature `score`, without their padding."""
    scores = []
    names = "score", "tokens", "log_probs", "truncated"
    for row in read_rows(response, count, *names, optional=["unknown"]):
        tokens, log_probs = unpadded(row, "tokens", "log_probs")
        read = row["truncated"], row.get("unknown", "")
        scores.append(Score(row["score"], tokens, log_probs, *read))
    return scores


class _Translators(Endpoint):
    """The methods of both clients of a translator."""

    @rpc_method
    def translate(self, texts: Sequence[str], split: bool = False) -> Steps[list[Translation]]:
        """Return the best translation of each text; `split` translates each sentence separately."""
        write, read = write_texts, read_translations
        if not split:
            return (yield from self.predict("translate", checked_texts(texts), write, read))
        texts = checked_texts(texts)
        metadata = yield from self._metadata()
        pieces = [split_sentences(text, metadata.signatures) for text in texts]
        sentences = [sentence for text in pieces for sentence, _ in text]
        translations = iter((yield from self.predict("translate", sentences, write, read)))
        return [join_sentences([(next(translations), gap) for _, gap in text]) for text in pieces]

    @rpc_method
    def nbest(self, texts: Sequence[str]) -> Steps[list[list[Hypothesis]]]:
        """Return the N best translations of each text, best first; the export sets N."""
        read = partial(read_hypotheses, name="translations")
        return self.predict("nbest", checked_texts(texts), write_texts, read)

    @rpc_method
    def align(self, texts: Sequence[str]) -> Steps[list[Alignment]]:
        """Return the translation of each text with its attention weights."""
        return self.predict("align", checked_texts(texts), write_texts, read_alignments)

    @rpc_method
    def score(self, texts: Sequence[str], translations: Sequence[str]) -> Steps[list[Score]]:
        """Return the probability of a given translation of each text, token by token."""

        def write(pairs: Sequence[tuple[str, str]]) -> dict[str, Message]:
            first, second = zip(*pairs, strict=True)
            return write_texts(first) | write_texts(second, "translation")

        pairs = list(zip(*checked_pairs(texts, translations), strict=True))
        return self.predict("score", pairs, write, read_scores, lambda pair: sum(map(len, pair)))


class Translator(_Translators, Client):
    """A translator on a model server. Arguments: see `serving.client.protocol.Endpoint`.

    Its methods raise ServingError. Use as a context manager, or call `close()`. Thread-safe.
    """


class AsyncTranslator(_Translators, AsyncClient):
    """`Translator` for asyncio: the arguments are the same, the methods are coroutines."""


def write_files(files: Sequence[bytes]) -> dict[str, Message]:
    """Return files of images as an input `(B,)` of a request."""
    return {INPUT: string_tensor(files)}


def read_readings(response: Message, count: int) -> list[Reading]:
    """Return the answers of the signature `read`, one for each image."""
    # Models from elsewhere may not return the probabilities of tokens.
    more = _TOKENS if "token_probabilities" in response.outputs else ()
    return [
        Reading(row["text"], row["score"], *unpadded(row, *_TOKENS))
        for row in read_rows(response, count, "text", "score", *more)
    ]


def read_regions(response: Message, count: int) -> list[Regions]:
    """Return the answers of the signature `regions`, without their padding."""
    names = "text", "score", "tokens", "attention_weights"
    answers = []
    for row in read_rows(response, count, *names, optional=_TOKENS[1:], weights=4):
        tokens, weights, probabilities = unpadded(row, "tokens", "attention_weights", _TOKENS[1])
        grids = tuple(tuple(map(tuple, grid)) for grid in weights)
        answers.append(Regions(row["text"], row["score"], tokens, grids, probabilities))
    return answers


class _Readers(Endpoint):
    """The methods of both clients of a reader."""

    @rpc_method
    def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> Steps[list[Reading | InvalidRequestError]]:
        """Return the text in each image."""
        return self._read("read", images, read_readings, keep_errors)

    @rpc_method
    def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> Steps[list[Regions | InvalidRequestError]]:
        """Return the text in each image with its attention weights over the image."""
        return self._read("regions", images, read_regions, keep_errors)

    @rpc_method
    def nbest(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> Steps[list[list[Hypothesis] | InvalidRequestError]]:
        """Return the N best texts of each image, best first."""
        return self._read("nbest", images, partial(read_hypotheses, name="texts"), keep_errors)

    def _read(
        self, signature: str, images: Sequence[Any], read: Callable[[Any, int], list[T]], keep: bool
    ) -> Steps[list[T | InvalidRequestError]]:
        images = checked_items(images, "images", axes=(1, 4))
        answers = yield from self._each(signature, list(map(image_file, images)), read)
        for number, answer in enumerate(answers):
            if isinstance(answer, InvalidRequestError):
                path = images[number]
                name = f" ({path})" if isinstance(path, str | Path) else ""
                error = InvalidRequestError(f"image {number + 1}{name}: {answer}", answer.code)
                if not keep:
                    raise error
                answers[number] = error
        return answers

    def _each(
        self, signature: str, files: list[bytes], read: Callable[[Any, int], list[T]]
    ) -> Steps[list[T | InvalidRequestError]]:
        """Return an answer or error for each file; a rejected batch is halved and sent again."""
        try:
            return list((yield from self.predict(signature, files, write_files, read)))
        except InvalidRequestError as error:
            if len(files) == 1:
                return [error]
        half = len(files) // 2
        first = yield from self._each(signature, files[:half], read)
        return first + (yield from self._each(signature, files[half:], read))


class Reader(_Readers, Client):
    """A reader of images on a model server. Arguments: see `serving.client.protocol.Endpoint`.

    An image is a path, the bytes of a PNG or JPEG file, or a uint8 array `(H, W)` or `(H, W, C)`. A
    broken image raises an InvalidRequestError that names it; with `keep_errors` the error is
    returned instead of the image's answer, and the other images are read. Use as a context manager,
    or call `close()`. Thread-safe.
    """


class AsyncReader(_Readers, AsyncClient):
    """`Reader` for asyncio: the arguments are the same, the methods are coroutines."""


def read_predictions(response: Message, count: int) -> list[Prediction]:
    """Return the answers of the signature `predict`, one for each history; weights keep padding."""
    weights, cut = "attention_weights", "truncated"
    return [
        Prediction(row["probability"], tuple(row.get(weights, ())), row.get("truncated", False))
        for row in read_rows(response, count, "probability", optional=[weights, cut], weights=2)
    ]


class _Predictors(Endpoint):
    """The methods of both clients of a model of histories."""

    @rpc_method
    def outcome(
        self, histories: Sequence[History], ignore: bool = False
    ) -> Steps[list[Prediction]]:
        """Return the outcome's probability for each history; `ignore` skips unknown columns."""
        histories = checked_items(histories, "histories")
        metadata = yield from self._metadata()
        inputs = list(metadata.signatures.get("predict", {}).get("inputs", {TIME: ""}))
        rows = [history_columns(history, inputs, ignore) for history in histories]

        def write(batch: Sequence[dict[str, list[float]]]) -> dict[str, Message]:
            return {name: float_tensor(x) for name, x in padded_columns(batch).items()}

        def size(row: dict[str, list[float]]) -> int:
            return len(row[TIME])

        predictions = yield from self.predict("predict", rows, write, read_predictions, size)
        return [
            replace(answer, attention_weights=answer.attention_weights[: len(row[TIME])])
            for answer, row in zip(predictions, rows, strict=True)
        ]


class Predictor(_Predictors, Client):
    """A model of histories on a model server. Arguments: see `serving.client.protocol.Endpoint`.

    A history is a dict of columns. Each column, including "time", is a list with one value for each
    event: see `history_columns`. Use as a context manager, or call `close()`. Thread-safe.
    """


class AsyncPredictor(_Predictors, AsyncClient):
    """`Predictor` for asyncio: the arguments are the same, the methods are coroutines."""
