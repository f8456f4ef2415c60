"""PyTorch's own ways: see `generic.py`.

On a CPU every operation of PyTorch reads its arguments from memory and writes its result there, and
its `tanh` costs ten multiplications. Additive scores are their exponential form here, a block at a
time, in memory that is used again and stays in the caches. On a GPU they are kernels of Triton: see
`triton.py`.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Iterator
from typing import Any

import keras
import torch
from keras import ops
from torch import Tensor

from keras_attention.backend.generic import NO_SECOND_DERIVATIVE

# Exponentials of twice a number below it are finite in float32.
LARGEST = 44.0
# Numbers in a block: few enough for the caches, so many that threads rarely wait for one another.
AT_A_TIME = 2**21
# Programs along an axis of a GPU's grid.
LARGEST_GRID = 65_535

_Block = tuple[slice, slice, slice]


def gather_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return `(B, k, ...)`, the elements `index` `(B, k)`, none negative, of `x` `(B, n, ...)`.

    ONNX knows no `take_along_dim`, which `keras.ops` has.
    """
    index = index.to(torch.int64).reshape(*index.shape, *[1] * (x.ndim - 2))
    return torch.gather(x, 1, index.expand(-1, -1, *x.shape[2:]))


def add_in_rows(x: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the sums of `x` at the places `index`: see `generic.add_in_rows`."""
    index = index.to(torch.int64).unsqueeze(1).expand(-1, x.shape[1], -1)
    return x.new_zeros(*x.shape[:2], size).scatter_add(2, index, x)


def greatest(x: Tensor, least: float, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the greatest of `x` and `least`: `ops.max` takes `least` to the CPU."""
    x = ops.convert_to_tensor(x)
    if axis is None:
        x, axis = torch.nn.functional.pad(x.reshape(-1), (0, 1), value=least), 0
    return torch.clamp(torch.amax(x, axis, keepdim=keepdims), min=least)


def traces_onnx() -> bool:
    """Whether a graph of ONNX is being traced: loops are unrolled there."""
    return bool(torch.jit.is_tracing())


def under_dynamo() -> bool:
    """Whether `torch.compile` traces what is being computed: it unrolls loops over blocks."""
    return bool(torch.compiler.is_compiling())


def matmul(x: Any, y: Any) -> Any:
    """Return the product of `(..., n, k)` and `(..., k, m)`: that of `keras.ops` rounds float64."""
    if isinstance(x, keras.KerasTensor) or isinstance(y, keras.KerasTensor):
        return ops.matmul(x, y)
    x, y = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    exact = x.dtype == y.dtype == torch.float64
    return torch.matmul(x, y) if exact else ops.matmul(x, y)


def project(x: Any, kernel: Any) -> Any:
    """Return the product of `(..., m)` and a kernel `(m, n)` or `(m,)`."""
    return matmul(x, kernel)


def average(weights: Any, value: Any) -> Any:
    """Return the product of weights `(..., n, S)` and values `(..., S, dv)`."""
    return matmul(weights, value)


def writes_in_place(*tensors: Any) -> bool:
    """Whether operations on these may write into memory that exists: eagerly, on a CPU."""
    return _runs_eagerly(*tensors) and all(x.device.type == "cpu" for x in tensors)


def has_kernel(*tensors: Any) -> bool:
    """Whether Triton has a kernel for these: eagerly, in float32, on a GPU."""
    return (
        _runs_eagerly(*tensors)
        and all(x.is_cuda and x.dtype == torch.float32 for x in tensors)
        and max(max(x.shape) for x in tensors) <= LARGEST_GRID
        and _has_triton()
    )


def _runs_eagerly(*tensors: Any) -> bool:
    plain = (torch.Tensor, torch.nn.Parameter)
    return not under_dynamo() and all(type(x) in plain for x in tensors)


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def in_place_additive(query: Tensor, key: Tensor, scale: Tensor) -> Tensor | None:
    """Return `vᵀ tanh(q + k)` with its gradients; None where exponentials would leave float32."""
    with torch.no_grad():
        if max(query.max().item(), key.max().item()) >= LARGEST:
            return None
    scores: Tensor = _Additive.apply(query, key, scale)
    return scores


class _Additive(torch.autograd.Function):
    """`Σ v - 2 Σ_d v_d r_d` with `r = 1 / (1 + e^{2q} e^{2k})`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, scale)
        found = query.new_empty(*query.shape[:2], key.shape[1])
        with torch.autocast("cpu", enabled=False):
            for (b, i, j), r in _blocks_of_r(query, key):
                found[b, i, j] = torch.matmul(r, scale)
            return scale.sum() - 2 * found

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return _Gradients.apply(*ctx.saved_tensors, upstream)


class _Gradients(torch.autograd.Function):
    """`d tanh = 4 r (1 - r)`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, scale: Tensor, upstream: Tensor) -> Any:
        of_query, of_key = torch.zeros_like(query), torch.zeros_like(key)
        of_scale = torch.zeros_like(scale)
        with torch.autocast("cpu", enabled=False):
            for (b, i, j), r in _blocks_of_r(query, key):
                weights = upstream[b, i, j]
                # Block by block: a sum of all `r` is far greater than one of all `1 - 2r`.
                of_scale += weights.sum() - 2 * torch.mv(
                    r.reshape(-1, r.shape[-1]).T, weights.reshape(-1)
                )
                slope = r.addcmul_(r, r, value=-1).mul_(weights.unsqueeze(-1))
                of_query[b, i] += slope.sum(2)
                of_key[b, j] += slope.sum(1)
            return of_query.mul_(4 * scale), of_key.mul_(4 * scale), of_scale

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> Any:
        raise NotImplementedError(NO_SECOND_DERIVATIVE)


def _blocks_of_r(query: Tensor, key: Tensor) -> Iterator[tuple[_Block, Tensor]]:
    """Yield where a block of `r` is, and the block `(b, n, m, units)`, until the next is made."""
    one = query.new_ones(())
    queries, keys = torch.exp(2 * query), torch.exp(2 * key)
    batch, n, m = _sizes(query.shape[0], query.shape[1], key.shape[1], query.shape[2])
    memory = query.new_empty(batch * n * m * query.shape[2])
    for b in _slices(query.shape[0], batch):
        for i in _slices(query.shape[1], n):
            for j in _slices(key.shape[1], m):
                rows, others = queries[b, i].unsqueeze(2), keys[b, j].unsqueeze(1)
                shape = (*rows.shape[:2], *others.shape[2:])
                r = memory[: math.prod(shape)].view(shape)
                yield (b, i, j), torch.addcmul(one, rows, others, out=r).reciprocal_()


def _sizes(batch: int, queries: int, keys: int, units: int) -> tuple[int, int, int]:
    """Return how many of a batch, of its queries and of its keys are in a block."""
    m = max(1, min(keys, AT_A_TIME // units))
    n = max(1, min(queries, AT_A_TIME // (m * units)))
    return max(1, min(batch, AT_A_TIME // (n * m * units))), n, m


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, length, size))
