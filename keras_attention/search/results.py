"""The results of a search, and how they are put together at the end."""

from __future__ import annotations

from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend

Tensor = Any


class SearchResult(NamedTuple):
    """The results of a search. Those of greedy search have no axis N.

    Where there are fewer hypotheses than asked for, the rest have the length 0 and a score of -inf.

    Attributes:
        ids: int32 `(B, N, T)`, the end token included, padded with `pad_id` after it.
        lengths: int32 `(B, N)`, tokens in each result, the end token included.
        scores: float32 `(B, N)`, of a beam search best first: the sum of the log-probabilities
            divided by `((5 + length) / 6) ** length_penalty`, plus the coverage
            penalty, at most 0.
        attention_weights: `(B, N, T, S)`, with several heads `(B, N, T, heads, S)`, zeros
            after the end; None if they were not asked for.
        log_probs: float32 `(B, N, T)`, the log-probability of each token, zeros after the end.
    """

    ids: Tensor
    lengths: Tensor
    scores: Tensor
    attention_weights: Any
    log_probs: Tensor


def finish(parts: dict[str, Any], length: Tensor, scores: Tensor, pad_id: int) -> SearchResult:
    """Return the results of `tokens`, `log_probs` `(B, N, T)` and `weights` `(B, N, T, ..., S)`.

    Lengths and scores are `(B, N)`; a score is -inf if there is no such hypothesis.
    """
    length = ops.where(scores > -float("inf"), length, 0)
    ids, weights = parts["tokens"], parts.get("weights")
    inside = ops.arange(ops.shape(ids)[-1]) < ops.expand_dims(length, -1)

    def blank(x: Tensor) -> Tensor:
        seen = ops.reshape(inside, (*ops.shape(inside), *[1] * (len(x.shape) - 3)))
        return ops.where(seen, x, ops.zeros_like(x))

    if all(x.shape[-1] == 0 for x in tree.flatten(weights) if x is not None):
        weights = None  # the decoder does not attend
    weights = None if weights is None else tree.map_structure(blank, weights)
    ids = ops.where(inside, ids, ops.full_like(ids, pad_id))
    return SearchResult(ids, length, scores, weights, blank(parts["log_probs"]))


def by_hypothesis(weights: Any, batch_size: Any, rows: int) -> Any:
    """Return a step's weights as `(B, rows, S)`; S is 0 for a decoder that does not attend."""
    if weights is None:
        return ops.zeros((batch_size, rows, 0), "float32")
    return tree.map_structure(
        lambda x: ops.reshape(ops.cast(x, "float32"), (batch_size, rows, *ops.shape(x)[1:])),
        weights,
    )


def follow_parents(outputs: dict[str, Any], steps: Tensor, first: Tensor) -> dict[str, Any]:
    """Rebuild the results `(B, N, T, ...)` from the outputs of all steps, `(T, B, W, ...)`.

    `steps` were taken; `first`, int32 `(B, N)`, are the hypotheses that are the results.
    """
    time = ops.shape(outputs["parents"])[0]
    backwards = tree.map_structure(lambda x: ops.flip(x, axis=0), outputs)
    # A backend may pad the steps (see `backend.unfold`); the padding is passed over.
    backwards["was_taken"] = ops.flip(ops.arange(time) < steps, axis=0)

    def back(row: dict[str, Any], beams: Tensor) -> tuple[dict[str, Any], Tensor]:
        parents = backend.gather_in_rows(row["parents"], beams)
        parents = ops.where(row["was_taken"], parents, beams)
        rows = {x: backend.gather_in_rows(row[x], beams) for x in ("tokens", "log_probs")}
        if "weights" in row:  # they belong to the beams before the choice: to the parents
            rows["weights"] = tree.map_structure(
                lambda x: backend.gather_in_rows(x, parents), row["weights"]
            )
        return rows, parents

    dtypes = {"tokens": "int32", "log_probs": "float32"}
    if "weights" in outputs:
        dtypes["weights"] = tree.map_structure(lambda _: "float32", outputs["weights"])
    rows, _ = backend.scan(back, first, backwards, dtypes)
    result: dict[str, Any] = tree.map_structure(
        lambda x: ops.moveaxis(ops.flip(x, axis=0), 0, 2), rows
    )
    return result
