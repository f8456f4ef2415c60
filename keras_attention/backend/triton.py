"""Additive scores and their gradients as kernels of Triton, for PyTorch on a GPU.

No kernel writes a number for a (query, key, unit): each is computed where it is added up, and once
more for the gradients. `tanh x = 1 - 2 / (1 + e^{2x})` holds for every float32: where `e^{2x}` is
infinite or 0, it is 1 or -1.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from triton import language as tl

from keras_attention.backend.generic import NO_SECOND_DERIVATIVE

# Rows, others and units of the block that a program holds in registers.
ROWS, OTHERS, UNITS = 8, 8, 64


def additive(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
    """Return `vᵀ tanh(q + k)`, float32 `(B, Tq, Tv)`, with its gradients."""
    scores: Tensor = _Additive.apply(query, key, scale)
    return scores


class _Additive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
        query, key, scale = query.contiguous(), key.contiguous(), scale.contiguous()
        ctx.save_for_backward(query, key, scale)
        (batch, queries, units), keys = query.shape, key.shape[1]
        found = query.new_empty(batch, queries, keys)
        grid = (triton.cdiv(keys, OTHERS), triton.cdiv(queries, ROWS), batch)
        with torch.cuda.device_of(query):
            _scores[grid](query, key, scale, found, queries, keys, units, ROWS, OTHERS, UNITS)
        return found

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return _Gradients.apply(*ctx.saved_tensors, upstream)


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor) -> Any:
        of_query, hidden = _sums(query, key, upstream)
        of_key, _ = _sums(key, query, upstream.transpose(1, 2))
        return of_query.mul_(scale), of_key.mul_(scale), hidden.sum((0, 1))

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> Any:
        raise NotImplementedError(NO_SECOND_DERIVATIVE)


def _sums(rows: Tensor, others: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return `Σ_j w_ij (1 - t_ij²)`, `(B, T, units)`, and sums of `w t` over `j` and some `i`."""
    batch, length, units = rows.shape
    blocks = triton.cdiv(length, ROWS)
    slopes = torch.empty_like(rows)
    hidden = rows.new_empty(batch, blocks, units)
    with torch.cuda.device_of(rows):
        _slopes[(triton.cdiv(units, UNITS), blocks, batch)](
            *(rows, others, weights, slopes, hidden, length, others.shape[1], units),
            *weights.stride(),
            *(ROWS, OTHERS, UNITS),
        )
    return slopes, hidden


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 1 - 2 / (1 + tl.exp(2 * x))


@triton.jit
def _scores(  # type: ignore[no-untyped-def]
    query,
    key,
    scale,
    found,
    queries,
    keys,
    units,
    ROWS: tl.constexpr,
    OTHERS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Write a block of scores."""
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    other = tl.program_id(0) * OTHERS + tl.arange(0, OTHERS)
    batch = tl.program_id(2).to(tl.int64)
    query += (batch * queries + row[:, None]) * units
    key += (batch * keys + other[:, None]) * units
    total = tl.zeros((ROWS, OTHERS, UNITS), tl.float32)
    for start in range(0, units, UNITS):
        unit = start + tl.arange(0, UNITS)
        there = unit[None] < units
        q = tl.load(query + unit[None], mask=(row[:, None] < queries) & there, other=0.0)
        k = tl.load(key + unit[None], mask=(other[:, None] < keys) & there, other=0.0)
        v = tl.load(scale + unit, mask=unit < units, other=0.0)
        total += v[None, None] * _tanh(q[:, None] + k[None])
    found += (batch * queries + row[:, None]) * keys + other[None]
    there = (row[:, None] < queries) & (other[None] < keys)
    tl.store(found, tl.sum(total, 2), mask=there)


@triton.jit
def _slopes(  # type: ignore[no-untyped-def]
    rows,
    others,
    weights,
    slopes,
    hidden,
    length,
    count,
    units,
    of_batch,
    of_row,
    of_other,
    ROWS: tl.constexpr,
    OTHERS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Write a block of each of `_sums`."""
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    batch = tl.program_id(2).to(tl.int64)
    place = (batch * length + row[:, None]) * units + unit[None]
    mine = (row[:, None] < length) & (unit[None] < units)
    q = tl.load(rows + place, mask=mine, other=0.0)
    slope = tl.zeros((ROWS, OTHERS, UNITS), tl.float32)
    total = tl.zeros((ROWS, OTHERS, UNITS), tl.float32)
    others += batch * count * units + unit[None]
    weights += batch * of_batch + row[:, None] * of_row
    for start in range(0, count, OTHERS):
        other = start + tl.arange(0, OTHERS)
        there = (other[:, None] < count) & (unit[None] < units)
        k = tl.load(others + other[:, None] * units, mask=there, other=0.0)
        there = (row[:, None] < length) & (other[None] < count)
        w = tl.load(weights + other[None] * of_other, mask=there, other=0.0)[:, :, None]
        t = _tanh(q[:, None] + k[None])
        slope += w * (1 - t * t)
        total += w * t
    tl.store(slopes + place, tl.sum(slope, 1), mask=mine)
    blocks = tl.num_programs(1)
    hidden += (batch * blocks + tl.program_id(1)) * units + unit
    tl.store(hidden, tl.sum(tl.sum(total, 1), 0), mask=unit < units)
