"""A reader of images, and a model of histories, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from serving.api._arguments import checked_items
from serving.api._errors import InvalidRequestError, SignatureNotFoundError
from serving.api._histories import TIME, History, history_columns
from serving.api._image_files import image_file
from serving.api._results import Hypothesis, Prediction, Reading, Regions
from serving.portable.read._model import (
    Folder,
    LocalModel,
    LocalSearch,
    Result,
    Signatures,
    hypotheses,
    shown_places,
    tokens_of,
)
from serving.portable.read._pixels import read_image

T = TypeVar("T")


class LocalReader(LocalSearch):
    """A reader in this process, with the methods and results of `serving.client.Reader`.

    Arguments as of `LocalSearch`; `batch_size` images are read together.
    """

    task, main = "read", "reader"

    def signatures(self) -> Signatures:
        """See the base class."""
        height, width = self.manifest["source"]["regions"]
        names = ["read", "nbest", *(["regions"] if self.manifest["attends"] else [])]
        return self._declared(names, N=self._results, H=height, W=width)

    def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Reading | InvalidRequestError]:
        """Return the text in each image; for the forms of an image see `serving.client.Reader`."""
        return self._read(images, keep_errors, self._reading)

    def nbest(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[list[Hypothesis] | InvalidRequestError]:
        """Return each image's texts, best first."""
        answer = partial(hypotheses, self._target)
        return self._read(images, keep_errors, answer, self._results)

    def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Regions | InvalidRequestError]:
        """Return the text in each image, and where the model looked.

        Raises SignatureNotFoundError for a model without attention.
        """
        if not self.manifest["attends"]:
            raise SignatureNotFoundError(
                "this model has no regions: it was trained without attention"
            )
        return self._read(images, keep_errors, self._regions, with_weights=True)

    def _read(
        self,
        images: Sequence[Any],
        keep: bool,
        answer: Callable[[Result], T],
        results: int = 1,
        with_weights: bool = False,
    ) -> list[T | InvalidRequestError]:
        """Return `answer(result)` for each image; with `keep`, an error for an unreadable image."""
        images = checked_items(images, "images", axes=(1, 4))

        def work(rows: Sequence[int]) -> list[T | InvalidRequestError]:
            pixels = [self._pixels(row, images[row], keep) for row in rows]
            good = [each for each in pixels if isinstance(each, np.ndarray)]
            source = {"pixels": np.array(good)}
            answers = self._run(source, results, with_weights) if good else iter(())
            return [
                answer(next(answers)) if isinstance(each, np.ndarray) else each for each in pixels
            ]

        return list(chain.from_iterable(self._each(range(len(images)), work)))

    def _pixels(self, number: int, image: Any, keep: bool) -> np.ndarray | InvalidRequestError:
        """Return the pixels of an image, or with `keep` the error where it cannot be read."""
        contents = image_file(image)
        size = [self.manifest["source"][name] for name in ("height", "width", "channels")]
        try:
            return read_image(contents, *size)
        except ValueError as reason:
            name = f" ({image})" if isinstance(image, str | Path) else ""
            error = InvalidRequestError(f"image {number + 1}{name} {reason}")
            if not keep:
                raise error from None
            return error

    def _reading(self, result: Result) -> Reading:
        best, *_ = hypotheses(self._target, result)
        tokens = tokens_of(self._target, result.ids[0])
        probabilities = np.exp(result.log_probs[0, shown_places(result.ids[0])]).tolist()
        return Reading(best.text, best.score, tokens, tuple(probabilities))

    def _regions(self, result: Result) -> Regions:
        text, score, tokens, probabilities = astuple(self._reading(result))
        weights = result.weights[0, shown_places(result.ids[0])]
        grids = weights.reshape(len(tokens), *self.manifest["source"]["regions"])
        rows = tuple(tuple(map(tuple, grid)) for grid in grids.tolist())
        return Regions(text, score, tokens, rows, probabilities)


class LocalPredictor(LocalModel):
    """A model of histories in this process, with the method of `serving.client.Predictor`.

    Arguments as of `LocalModel`; `batch_size` histories are read together.
    """

    task = "predict"

    def __init__(
        self, path: str | Path | Folder, *, batch_size: int = 32, threads: int = 1
    ) -> None:
        super().__init__(path, batch_size, threads)
        about = self.manifest["source"]
        self._columns = about["columns"]
        self._logged = np.isin(self._columns, about.get("log", []))
        self._most = about.get("max_events")  # None in older exports, which read all events

    def signatures(self) -> Signatures:
        """See the base class."""
        (signature,) = self._declared(["predict"]).values()
        if not self.manifest["attends"]:
            del signature["outputs"]["attention_weights"]
        return {"predict": {**signature, "inputs": dict.fromkeys(self._columns, "float(?, ?)")}}

    def outcome(self, histories: Sequence[History], ignore: bool = False) -> list[Prediction]:
        """Return the probability of each history's outcome; `ignore` leaves out unknown columns.

        Raises ValueError as `serving.api._histories.history_columns` does.
        """
        rows = [
            history_columns(history, self._columns, ignore)
            for history in checked_items(histories, "histories")
        ]
        return self.predict([np.array([row[name] for name in self._columns]).T for row in rows])

    def predict(self, events: Sequence[np.ndarray]) -> list[Prediction]:
        """Return a prediction for each history of events, `(T, columns)`.

        A row without a time (NaN) is no event. Raises ValueError for a number below 0 whose
        logarithm is taken.
        """
        rows = [np.asarray(each, "float32") for each in events]
        for row in rows:
            for place, column in np.argwhere((row < 0) & self._logged)[:1]:
                raise ValueError(
                    f"{self._columns[column]} needs a number, 0 to 1e30, but it is "
                    f"{row[place, column]:g}"
                )
        places = [np.flatnonzero(~np.isnan(row[:, self._columns.index(TIME)])) for row in rows]

        def work(numbers: Sequence[int]) -> list[Prediction]:
            longest = max(len(places[number]) for number in numbers)
            # An event without a time is padding: histories may be empty.
            batch = np.full((len(numbers), longest + 1, len(self._columns)), np.nan, "float32")
            for place, number in enumerate(numbers):
                batch[place, : len(places[number])] = rows[number][places[number]]
            out = self._folder.run("predictor", {"events": batch})
            answers = []
            for place, number in enumerate(numbers):
                read = places[number][-self._most if self._most else None :]
                weights = np.zeros(len(rows[number]) if self.manifest["attends"] else 0, "float32")
                if weights.size:
                    weights[read] = out["attention_weights"][place, : len(read)]
                probability = float(out["probability"][place])
                cut = len(read) < len(places[number])
                answers.append(Prediction(probability, tuple(weights.tolist()), cut))
            return answers

        return list(chain.from_iterable(self._each(range(len(rows)), work)))
