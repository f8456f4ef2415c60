"""Clients of served models that read images or histories, blocking and asyncio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from serving.client import histories, reading
from serving.client.errors import InvalidRequestError
from serving.client.histories import TIME, History, Prediction
from serving.client.protocol import Endpoint, Steps
from serving.client.reading import Reading, Regions
from serving.client.transport import AsyncClient, Client

T = TypeVar("T")


class _Readers(Endpoint):
    """What both clients ask of a reader of images."""

    def _read(
        self, signature: str, images: Sequence[Any], read: Callable[[Any, int], list[T]], keep: bool
    ) -> Steps[list[T | InvalidRequestError]]:
        if isinstance(images, str | bytes):
            raise TypeError("expected a list of images; received one")
        files = [reading.image_file(image) for image in images]
        found = yield from self._each(signature, files, read)
        for number, answer in enumerate(found):
            if isinstance(answer, InvalidRequestError):
                image = images[number]
                name = f" ({image})" if isinstance(image, str | Path) else ""
                error = InvalidRequestError(f"image {number + 1}{name}: {answer}", answer.code)
                if not keep:
                    raise error
                found[number] = error
        return found

    def _each(
        self, signature: str, files: list[bytes], read: Callable[[Any, int], list[T]]
    ) -> Steps[list[T | InvalidRequestError]]:
        """Answer each file; where one of several is broken, the others are sent without it."""
        try:
            found = yield from self.predict(signature, files, reading.write_images, read)
        except InvalidRequestError as error:
            if len(files) == 1:
                return [error]
        else:
            return list(found)
        half = len(files) // 2
        first = yield from self._each(signature, files[:half], read)
        return first + (yield from self._each(signature, files[half:], read))


class Reader(_Readers, Client):
    """A reader of images on a model server; arguments as of `serving.client.protocol.Endpoint`.

    An image is a path, the bytes of a PNG or JPEG file, or an array of uint8. A broken one is an
    InvalidRequestError that names it; with `keep_errors` that stands in its place, and the others
    are read. Use as a context manager, or `close()`. Threads may share it.
    """

    def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Reading | InvalidRequestError]:
        """What stands in each image."""
        return self._run(self._read("read", images, reading.read_readings, keep_errors))

    def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Regions | InvalidRequestError]:
        """What stands in each image, and where the model looked."""
        return self._run(self._read("regions", images, reading.read_regions, keep_errors))


class AsyncReader(_Readers, AsyncClient):
    """`Reader` for asyncio: the same arguments, its methods are coroutines."""

    async def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Reading | InvalidRequestError]:
        """See `Reader.read`."""
        return await self._run(self._read("read", images, reading.read_readings, keep_errors))

    async def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Regions | InvalidRequestError]:
        """See `Reader.regions`."""
        return await self._run(self._read("regions", images, reading.read_regions, keep_errors))


class _Predictors(Endpoint):
    """What both clients ask of a model of histories."""

    def _predict(self, given: Sequence[History], ignore: bool) -> Steps[list[Prediction]]:
        metadata = yield from self._metadata()
        inputs = list(metadata.signatures.get("predict", {}).get("inputs", {TIME: ""}))
        rows = [histories.history_columns(history, inputs, ignore) for history in given]
        found = yield from self.predict(
            "predict",
            rows,
            histories.write_histories,
            histories.read_predictions,
            lambda row: len(row[TIME]),
        )
        return [
            replace(answer, attention_weights=answer.attention_weights[: len(row[TIME])])
            for answer, row in zip(found, rows, strict=True)
        ]


class Predictor(_Predictors, Client):
    """A model of histories on a model server; arguments as of `serving.client.protocol.Endpoint`.

    A history is a dict of columns, "time" among them, each a list with a value for each event; see
    `serving.client.histories`. Use as a context manager, or `close()`. Threads may share it.
    """

    def outcome(self, given: Sequence[History], ignore: bool = False) -> list[Prediction]:
        """How probable the outcome of each history is; `ignore` leaves out unknown columns."""
        return self._run(self._predict(given, ignore))


class AsyncPredictor(_Predictors, AsyncClient):
    """`Predictor` for asyncio: the same arguments, its methods are coroutines."""

    async def outcome(self, given: Sequence[History], ignore: bool = False) -> list[Prediction]:
        """See `Predictor.outcome`."""
        return await self._run(self._predict(given, ignore))
