"""A reader of images, and a model of histories, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from serving.api.arguments import checked_items
from serving.api.errors import InvalidRequestError, SignatureNotFoundError
from serving.api.histories import TIME, History, history_columns
from serving.api.image_files import image_file
from serving.api.results import Hypothesis, Prediction, Reading, Regions
from serving.portable.read.model import (
    LocalModel,
    Result,
    Search,
    Signatures,
    check_ids,
    declared,
    hypotheses,
    tokens_of,
)
from serving.portable.read.pixels import read_image
from serving.portable.read.tokenizers import load_tokenizer

T = TypeVar("T")


class LocalReader(LocalModel):
    """A reader in this process, with the methods and results of `serving.client.Reader`.

    Arguments as of `LocalModel`; `batch_size` images are read together. The settings of the search,
    see `Search`, are the export's where they are None; `nbest` returns `num_results`.
    """

    task = "read"

    def __init__(
        self,
        path: str | Path,
        *,
        beam_width: int | None = None,
        num_results: int | None = None,
        length_penalty: float | None = None,
        batch_size: int = 32,
        threads: int = 1,
    ) -> None:
        super().__init__(path, batch_size, threads)
        about = self.manifest
        self._settings = Search(about, beam_width, num_results, length_penalty)
        self._size = tuple(about["source"][name] for name in ("height", "width", "channels"))
        self._grid = tuple(about["source"]["regions"])
        self._target = load_tokenizer(self._folder.path, about["tokenizers"]["target"])

    def signatures(self) -> Signatures:
        """See the base class."""
        height, width = self._grid
        names = ["read", "texts", *(["regions"] if self.manifest["attends"] else [])]
        return declared(names, N=self._settings.results, H=height, W=width)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Load the graph; a model in this process is there at once."""
        self._search(np.zeros((1, *self._size), "uint8"))

    def read(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Reading | InvalidRequestError]:
        """The text in each image; see `serving.client.Reader` for what an image may be."""
        return self._read(images, keep_errors, self._reading)

    def nbest(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[list[Hypothesis] | InvalidRequestError]:
        """Each image's texts, best first."""
        count = self._settings.results
        return self._read(images, keep_errors, partial(hypotheses, self._target), results=count)

    def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Regions | InvalidRequestError]:
        """The text in each image, and where the model looked.

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
        """Answer each image by a function of its result."""
        images = checked_items(images, "images", axes=(1, 4))

        def work(rows: Sequence[int]) -> list[T | InvalidRequestError]:
            pixels = [self._pixels(row, images[row], keep) for row in rows]
            good = [each for each in pixels if isinstance(each, np.ndarray)]
            together = np.array(good, "uint8").reshape(-1, *self._size)
            answers = self._search(together, results, with_weights)
            return [
                answer(next(answers)) if isinstance(each, np.ndarray) else each for each in pixels
            ]

        return list(chain.from_iterable(self._each(range(len(images)), work)))

    def _pixels(self, number: int, image: Any, keep: bool) -> np.ndarray | InvalidRequestError:
        """Return the pixels of an image, or with `keep` the error where it cannot be read."""
        contents = image_file(image)
        try:
            return read_image(contents, *self._size)
        except ValueError as reason:
            name = f" ({image})" if isinstance(image, str | Path) else ""
            error = InvalidRequestError(f"image {number + 1}{name} {reason}")
            if not keep:
                raise error from None
            return error

    def _search(
        self, pixels: np.ndarray, results: int = 1, with_weights: bool = False
    ) -> Iterator[Result]:
        """Return the results of pixels `(B, H, W, C)`."""
        source = {"pixels": pixels}
        out = self._settings.run(self._folder, "reader", source, results, with_weights)
        check_ids(out["found"], self._target.size)
        return map(Result, *(out[name] for name in ("found", "log_probs", "scores", "weights")))

    def _reading(self, result: Result) -> Reading:
        best, *_ = hypotheses(self._target, result)
        tokens = tokens_of(self._target, result.ids[0])
        probabilities = np.exp(result.log_probs[0, : len(tokens)]).tolist()
        return Reading(best.text, best.score, tokens, tuple(probabilities))

    def _regions(self, result: Result) -> Regions:
        text, score, tokens, probabilities = astuple(self._reading(result))
        grids = result.weights[0, : len(tokens)].reshape(len(tokens), *self._grid)
        rows = tuple(tuple(map(tuple, grid)) for grid in grids.tolist())
        return Regions(text, score, tokens, rows, probabilities)


class LocalPredictor(LocalModel):
    """A model of histories in this process, with the method of `serving.client.Predictor`.

    Arguments as of `LocalModel`; `batch_size` histories are read together.
    """

    task = "predict"

    def __init__(self, path: str | Path, *, batch_size: int = 32, threads: int = 1) -> None:
        super().__init__(path, batch_size, threads)
        self._columns = self.manifest["source"]["columns"]

    def signatures(self) -> Signatures:
        """See the base class."""
        (signature,) = declared(["predict"]).values()
        if not self.manifest["attends"]:
            del signature["outputs"]["attention_weights"]
        return {"predict": {**signature, "inputs": dict.fromkeys(self._columns, "float(?, ?)")}}

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Load the graph; a model in this process is there at once."""
        self.outcome([{name: [0.0] for name in self._columns}])

    def outcome(self, histories: Sequence[History], ignore: bool = False) -> list[Prediction]:
        """How probable the outcome of each history is; `ignore` leaves out unknown columns.

        Raises ValueError as `serving.api.histories.history_columns` does.
        """
        rows = [
            history_columns(history, self._columns, ignore)
            for history in checked_items(histories, "histories")
        ]

        def work(numbers: Sequence[int]) -> list[Prediction]:
            batch = [rows[number] for number in numbers]
            lengths = [len(row[TIME]) for row in batch]
            # One event that is none, so that histories may be empty.
            events = np.full((len(batch), max(lengths) + 1, len(self._columns)), np.nan, "float32")
            for place, row in enumerate(batch):
                for number, name in enumerate(self._columns):
                    events[place, : lengths[place], number] = row[name]
            out = self._folder.run("predictor", {"events": events})
            weights = out.get("attention_weights", np.zeros((len(batch), 0)))
            return [
                Prediction(probability, tuple(row[:length]))
                for probability, row, length in zip(
                    out["probability"].tolist(), weights.tolist(), lengths, strict=True
                )
            ]

        return list(chain.from_iterable(self._each(range(len(rows)), work)))
