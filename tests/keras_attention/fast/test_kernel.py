"""Additive scores by kernels of Triton; without a GPU its interpreter runs them: see conftest."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import backend, fast_paths, scores
from keras_attention.fast import switch
from tests.keras_attention.fast.test_exponential import inputs, reference
from tests.keras_attention.helpers import array, assert_close, on_gpu

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the kernels are PyTorch's"
)


@pytest.fixture
def additive():
    """The scores by kernels."""
    pytest.importorskip("triton")
    from keras_attention.backend import triton

    return triton.additive


def leaves_of(arrays):
    return [ops.convert_to_tensor(x).clone().requires_grad_() for x in arrays]


def holds(additive, arrays, tolerance=1e-5):
    import torch

    expected, expected_gradients = reference(*arrays)
    leaves = leaves_of(arrays[:3])
    found = additive(*leaves)
    gradients = torch.autograd.grad(found, leaves, ops.convert_to_tensor(arrays[3]))
    for x, e in zip([found, *gradients], [expected, *expected_gradients], strict=True):
        assert_close(x.detach(), e, tolerance)


@pytest.mark.parametrize(
    "sizes",
    [
        (3, 11, 19, 71),  # the last blocks of rows, others and units are ragged
        (2, 8, 16, 64),  # whole blocks
        (1, 17, 2, 3),
        (2, 1, 1, 131),
    ],
)
def test_scores_and_gradients_follow_the_formula(rng, additive, sizes):
    holds(additive, inputs(rng, *sizes))


def test_large_arguments_are_held_at_1(rng, additive):
    query, key, scale, upstream = inputs(rng)
    with np.errstate(over="ignore"):  # the interpreter's exponentials are NumPy's
        holds(additive, [query + 25, key - 25, scale, upstream], 2e-5)
        holds(additive, inputs(rng, size=1e4))


def test_arguments_may_be_views_and_constants(rng, additive):
    import torch

    arrays = inputs(rng)
    query, key, scale = leaves_of(arrays[:3])
    turned = query.detach().transpose(0, 1).contiguous().transpose(0, 1)
    upstream = ops.convert_to_tensor(arrays[3]).transpose(1, 2).contiguous().transpose(1, 2)
    found = additive(turned, key, scale)
    expected, gradients = reference(*arrays)
    assert_close(found.detach(), expected)
    for x, e in zip(torch.autograd.grad(found, [key, scale], upstream), gradients[1:], strict=True):
        assert_close(x, e)


def test_a_second_derivative_is_refused(rng, additive):
    import torch

    leaves = leaves_of(inputs(rng)[:3])
    first = torch.autograd.grad(additive(*leaves).square().sum(), leaves, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"fast_paths\(False\)"):
        torch.autograd.grad(first[0].square().sum(), leaves)


def test_scores_are_the_kernels_where_there_are_some(rng, additive, monkeypatch):
    monkeypatch.setattr(backend, "writes_in_place", lambda *tensors: False)
    monkeypatch.setattr(backend, "has_kernel", lambda *tensors: True)
    monkeypatch.setattr(switch, "IN_PLACE", 1)
    tensors = leaves_of(inputs(rng)[:3])
    assert switch.additive(*tensors) == "kernel"
    holds(scores.additive, inputs(rng))


def test_a_gpu_takes_them_for_large_scores_in_float32(rng):
    if not on_gpu():
        pytest.skip("no GPU")
    arrays = inputs(rng, 8, 32, 37, 64)
    tensors = [ops.convert_to_tensor(x) for x in arrays[:3]]
    assert switch.additive(*tensors) == "kernel"
    assert switch.additive(*(x[:1] for x in tensors[:2]), tensors[2]) == "formula"
    assert switch.additive(*(x.double() for x in tensors)) != "kernel"
    with fast_paths(False):
        assert switch.additive(*tensors) == "formula"
    assert_close(scores.additive(*tensors), reference(*arrays)[0])
    half = [x.half() for x in tensors]
    assert_close(array(scores.additive(*half)).astype("float32"), reference(*arrays)[0], 2e-2)


def test_without_a_gpu_none_is_taken(rng):
    if on_gpu():
        pytest.skip("there is a GPU")
    tensors = [ops.convert_to_tensor(x) for x in inputs(rng, 8, 32, 37, 64)[:3]]
    assert switch.additive(*tensors) == "in_place"
