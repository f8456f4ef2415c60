"""PyTorch's versions of functions in `_generic.py`, which documents them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from keras_attention.backend import _generic as generic
from keras_attention.backend._generic import Step

# For numbers x below it, e^{2x} is finite in float32.
_LARGEST = 44.0
# Additive scores of sizes `B · Tq · Tv · units` up to this use the plain formula.
LARGEST_FORMULA = 2**20
BLOCK, BLOCK_ON_GPU = 2**18, 2**26  # values of `r` in a block


def gather_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return rows: see `generic.gather_in_rows`. ONNX cannot express `ops.take_along_axis`."""
    # (B, k) to (B, k, 1, ...), the rank of x
    index = index.to(torch.int64).reshape(*index.shape, *[1] * (x.ndim - 2))
    return torch.gather(x, 1, index.expand(-1, -1, *x.shape[2:]))


def take_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return elements: see `generic.take_in_rows`. ONNX cannot express `ops.take_along_axis`."""
    index = index.to(torch.int64).unsqueeze(1).expand(-1, x.shape[1], -1)  # (B, T, S)
    return torch.gather(x, 2, index)


def add_in_rows(x: Tensor, index: Tensor, size: int) -> Tensor:
    """Return sums of `x` by index: see `generic.add_in_rows`."""
    index = index.to(torch.int64).unsqueeze(1).expand(-1, x.shape[1], -1)
    return x.new_zeros(*x.shape[:2], size).scatter_add(2, index, x)


def is_concrete(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read."""
    return not (torch.compiler.is_compiling() or torch.jit.is_tracing())


def traces_onnx() -> bool:
    """Return whether PyTorch is tracing an ONNX graph, in which loops are unrolled."""
    return bool(torch.jit.is_tracing())


def additive(query: Tensor, key: Tensor, scale: Tensor, training: bool) -> Tensor | None:
    """Return additive scores without the formula's tensor: see `generic.additive`.

    `torch.compile`, exports and the transforms of `torch.func` use the plain formula.
    """
    if not is_concrete(query) or generic.count_hidden(query, key, 0) <= LARGEST_FORMULA:
        return None
    if torch._C._are_functorch_transforms_active():  # PyTorch has no public function for this
        return None
    scores: Tensor = _Additive.apply(query, key, scale)
    return scores


class _Additive(torch.autograd.Function):
    """Additive scores `Σ v - 2 Σ_d v_d r_d` with `r = 1 / (1 + e^{2q} e^{2k})`, block by block.

    A block of `r` fits in the caches of a CPU. The gradients compute `r` again.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, scale)
        sums = query.new_empty(*query.shape[:2], key.shape[1])
        with torch.autocast(query.device.type, enabled=False):
            for b, i, r in _blocks(query, key):
                sums[b, i] = torch.matmul(r, scale)  # (b, i, Tv)
        return scale.sum() - 2 * sums

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        query, key, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # for derivatives of higher order
            weights = upstream.unsqueeze(-1)
            hidden = torch.tanh(query.unsqueeze(2) + key.unsqueeze(1))
            slope = weights * scale * (1 - hidden * hidden)
            return slope.sum(2), slope.sum(1), (weights * hidden).sum((0, 1, 2))
        of_query, of_key = torch.empty_like(query), torch.zeros_like(key)
        of_scale = torch.zeros_like(scale)
        with torch.autocast(query.device.type, enabled=False):
            for b, i, r in _blocks(query, key):
                weights = upstream[b, i]
                # Subtracted block by block: the sum of all `r` is far larger than the sum of all
                # `1 - 2r`, and so is its rounding error.
                of_scale += weights.sum() - 2 * r.flatten(0, 2).T.mv(weights.flatten())
                slope = r.addcmul_(r, r, value=-1)  # r - r², a quarter of the derivative of tanh
                # (b, i, 1, Tv) by (b, i, Tv, units): (b, i, units)
                of_query[b, i] = torch.matmul(weights.unsqueeze(2), slope).squeeze(2)
                # (b, Tv, 1, i) by (b, Tv, i, units): (b, Tv, units)
                turned = weights.transpose(1, 2).unsqueeze(2)
                of_key[b] += torch.matmul(turned, slope.transpose(1, 2)).squeeze(2)
        return of_query.mul_(4 * scale), of_key.mul_(4 * scale), of_scale


def _blocks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield for each block: slices of sentences and of queries, and `r` `(b, n, Tv, units)`."""
    block = BLOCK if query.device.type == "cpu" else BLOCK_ON_GPU
    batch, length = query.shape[0], query.shape[1]
    row = key.shape[1] * key.shape[2]
    count, size = max(1, block // (length * row)), max(1, block // row)
    # On a GPU, always use sigmoids: they are as fast as products of exponentials, and the test for
    # finite exponentials would wait for the GPU.
    finite = query.device.type == "cpu" and max(query.max(), key.max()) < _LARGEST
    one = query.new_ones(())
    query, key = (torch.exp(2 * x) if finite else -2 * x for x in (query, key))
    for b in (slice(n, n + count) for n in range(0, batch, count)):
        for i in (slice(n, n + size) for n in range(0, length, size)):
            rows, others = query[b, i].unsqueeze(2), key[b].unsqueeze(1)
            if finite:
                yield b, i, torch.addcmul(one, rows, others).reciprocal_()
            else:
                yield b, i, (rows + others).sigmoid_()


def unfold(
    step: Step, state: Any, done: Any, max_length: Any, pause: Any = None, resume: Any = None
) -> tuple[Any, Any, Any]:
    """Call `step` until the state is done: see `generic.unfold`.

    An ONNX graph takes `max_length` steps. Otherwise, its number of steps would be the number of
    steps for the traced input.
    """
    if traces_onnx():
        if not isinstance(max_length, int):
            raise ValueError(
                "A search exported to ONNX from PyTorch takes max_length steps, and expected a "
                "number for all sentences. Received: a tensor"
            )
        return generic.unfold(step, state, lambda _: torch.tensor(False), max_length)
    return generic.unfold(step, state, done, max_length, pause, resume)
