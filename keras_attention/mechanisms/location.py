"""Location attention: scores of the query alone."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.attention import Attention, Tensor
from keras_attention.backend import gather_in_rows, project
from keras_attention.shapes import first_place


@keras.saving.register_keras_serializable("keras_attention")
class LocationAttention(Attention):
    """Attention to places, whatever the memory holds there: `softmax(W q)`.

    The *location* score of Luong et al. 2015 (arXiv 1508.04025, section 3.1). Places count from the
    first position that the memory's mask allows: padding on the left changes nothing.

    Args:
        max_length: the greatest length `Tv` of a memory.
        **kwargs: see `Attention`, as call arguments and output.

    Weights: `kernel` `(dq, max_length)`.

    Raises:
        ValueError: if a memory is longer than `max_length`.
    """

    def __init__(self, max_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._expect_count("max_length", max_length)
        self._expect(self.num_heads == 1, "num_heads=1", f"num_heads={self.num_heads}")
        self.max_length = max_length

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the kernel."""
        self.kernel = self.add_kernel((query_dim, self.max_length), "kernel")

    def keys(self, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return the places themselves, int32 `(B, Tv)`; in front of the first they are 0."""
        batch, length = ops.shape(key)[:2]
        places = ops.broadcast_to(ops.arange(length, dtype="int32"), (batch, length))
        return places if mask is None else ops.relu(places - first_place(mask)[:, 0])

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores of the places that the memory has."""
        length = key.shape[1]
        self._expect(
            not isinstance(length, int) or length <= self.max_length,
            f"a memory of at most max_length={self.max_length} positions",
            f"{length} positions",
        )
        kernel = ops.cast(self.kernel, self.compute_dtype)
        by_place = ops.swapaxes(project(query, kernel), 1, 2)
        return ops.swapaxes(gather_in_rows(by_place, key), 1, 2)
