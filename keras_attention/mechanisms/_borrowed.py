"""Mechanisms that take their scores from another attention layer."""

from __future__ import annotations

from typing import Any

from keras_attention._attention import Attention
from keras_attention.layer import keeps
from keras_attention.shapes import Tensor

# The methods that a layer must not override if others borrow its score.
_OTHERS = ("call", "prepare", "step", "attend_all", "attend", "weigh", "draw_noise", "average")


def has_score_alone(attention: Any) -> bool:
    """Return whether a layer overrides only methods of its score, so that others can borrow it."""
    return isinstance(attention, Attention) and all(
        keeps(getattr(attention, name), getattr(Attention, name)) for name in _OTHERS
    )


class BorrowedScore(Attention):
    """Base class of the mechanisms that turn another layer's scores into weights.

    Args:
        attention: an attention layer of this library, the inner layer. Its score, the variables of
            its score and its number of heads are used.
        **kwargs: as for `Attention`.
    """

    def __init__(self, attention: Attention, **kwargs: Any) -> None:
        num_heads = getattr(attention, "num_heads", 1)
        super().__init__(**{"num_heads": num_heads, **kwargs})
        expected = f"as many heads as the inner layer has, {num_heads}"
        self._expect(self.num_heads == num_heads, expected, num_heads=self.num_heads)
        valid = has_score_alone(attention) and not attention.dropout
        valid = valid and attention.distribution == "softmax"
        expected = "an attention layer with nothing but a score, without dropout or distribution"
        self._expect(valid, expected, repr(attention))
        self._expect_dtype(attention)
        self.attention = attention

    @property
    def inner(self) -> list[Attention]:
        """The layers whose scores are used."""
        return [self.attention]

    def build(
        self, query_shape: Any, value_shape: Any = None, key_shape: Any | None = None
    ) -> None:
        """Make the weights of the inner layers, then the weights of this layer."""
        self._expect_inputs(value_shape)
        for layer in self.inner:
            if not layer.built:
                layer.build(query_shape, value_shape, key_shape)
        super().build(query_shape, value_shape, key_shape)

    def queries(self, query: Tensor) -> Any:
        """Return the queries of the inner layer."""
        return self.attention.queries(query)

    def keys(self, key: Tensor, mask: Tensor | None) -> Any:
        """Return the keys of the inner layer."""
        return self.attention.keys(key, mask)

    def compute_scores(self, query: Any, key: Any) -> Any:
        """Return the scores of the inner layer."""
        return self.attention.compute_scores(query, key)
