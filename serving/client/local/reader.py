"""A reader of images in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from serving.client.arguments import checked_items
from serving.client.errors import InvalidRequestError, SignatureNotFoundError
from serving.client.file_kinds import image_file
from serving.client.local.model import LocalModel
from serving.client.local.pixels import read_image
from serving.client.local.search import Search, hypotheses, tokens_of
from serving.client.local.tokenizers import load_tokenizer
from serving.client.results import Hypothesis, Reading, Regions

T = TypeVar("T")


class _Result(NamedTuple):
    """Of one image `(N, T)` ids, `(N,)` scores, `(N, T, S)` weights, `(N, T)` log-probabilities."""

    ids: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    log_probs: np.ndarray


class LocalReader(LocalModel):
    """A reader in this process, with the methods and results of `serving.client.Reader`.

    Args:
        path: of a version that was exported with `--format onnx`, or of the model, of whose
            versions the last is taken.
        beam_width: hypotheses of each image; None for what the model was exported with, as are the
            next two.
        num_results: how many `nbest` returns, at most `beam_width`.
        length_penalty: scores are divided by `((5 + length) / 6) ** length_penalty`.
        batch_size: images that are read together.
        threads: that batches share; those of one batch share its operations.

    Raises:
        ValueError: if there is no such export, or for a setting that is not possible.
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

    def signatures(self) -> dict[str, dict[str, dict[str, str]]]:
        """See the base class."""
        inputs = {"image_bytes": "string(?)"}
        text = {"text": "string(?)", "score": "float(?)"}
        read = {**text, "tokens": "string(?, ?)", "token_probabilities": "float(?, ?)"}
        height, width = self._grid
        regions = {**read, "attention_weights": f"float(?, ?, {height}, {width})"}
        count = self.results
        several = {"texts": f"string(?, {count})", "scores": f"float(?, {count})"}
        signatures = {
            "read": {"inputs": inputs, "outputs": read},
            "nbest": {"inputs": inputs, "outputs": several},
        }
        if self.manifest["attends"]:
            signatures["regions"] = {"inputs": inputs, "outputs": regions}
        return signatures

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
        return self._read(images, keep_errors, self._hypotheses, results=self.results)

    @property
    def results(self) -> int:
        """How many `nbest` returns."""
        return self._settings.results

    def regions(
        self, images: Sequence[Any], keep_errors: bool = False
    ) -> list[Regions | InvalidRequestError]:
        """The text in each image, and where the model looked.

        Raises:
            SignatureNotFoundError: for a model without attention.
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
        answer: Callable[[_Result], T],
        results: int = 1,
        with_weights: bool = False,
    ) -> list[T | InvalidRequestError]:
        """Answer each image by a function of its result."""
        images = checked_items(images, "images", axes=(1, 4))

        def work(rows: Sequence[int]) -> list[T | InvalidRequestError]:
            pixels = [self._pixels(row, images[row], keep) for row in rows]
            read = [one for one in pixels if isinstance(one, np.ndarray)]
            together = np.array(read, "uint8").reshape(-1, *self._size)
            answers = self._search(together, results, with_weights)
            return [answer(next(answers)) if isinstance(one, np.ndarray) else one for one in pixels]

        batches = self._batches.each(range(len(images)), work)
        return [one for batch in batches for one in batch]

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
    ) -> Iterator[_Result]:
        """Return the results of pixels `(B, H, W, C)`."""
        inputs = self._settings.inputs(results, with_weights)
        out = self._folder.run("reader", {"pixels": pixels, **inputs})
        self._settings.check_ids(out["found"], self._target.size)
        return map(_Result, *(out[name] for name in ("found", "scores", "weights", "log_probs")))

    def _hypotheses(self, result: _Result) -> list[Hypothesis]:
        return hypotheses(self._target, result.ids, result.scores)

    def _reading(self, result: _Result) -> Reading:
        best, *_ = self._hypotheses(result)
        tokens = tokens_of(self._target, result.ids[0])
        return Reading(best.text, best.score, tokens, _probabilities(result, tokens))

    def _regions(self, result: _Result) -> Regions:
        (best, *_), tokens = self._hypotheses(result), tokens_of(self._target, result.ids[0])
        grids = result.weights[0, : len(tokens)].reshape(len(tokens), *self._grid)
        rows = tuple(tuple(map(tuple, grid)) for grid in grids.tolist())
        return Regions(best.text, best.score, tokens, rows, _probabilities(result, tokens))


def _probabilities(result: _Result, tokens: Sequence[str]) -> tuple[float, ...]:
    """Return the probability of each token of the best text."""
    return tuple(np.exp(result.log_probs[0, : len(tokens)]).tolist())
