"""Additive scores in memory that is written again and again, on PyTorch, against the formula."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import fast_paths, scores
from keras_attention.fast import switch
from tests.keras_attention.fast.test_exponential import inputs, reference
from tests.keras_attention.helpers import array, assert_close, on_gpu

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch" or on_gpu(),
    reason="operations write in place on PyTorch alone, on a CPU",
)


@pytest.fixture
def taken(monkeypatch):
    """Blocks so small that most sizes here have several; counts the calls."""
    from keras_attention import backend
    from keras_attention.backend import torch

    calls, in_place = [], backend.in_place_additive
    monkeypatch.setattr(switch, "IN_PLACE", 1)
    monkeypatch.setattr(torch, "AT_A_TIME", 500)
    monkeypatch.setattr(backend, "in_place_additive", lambda *xs: calls.append(1) or in_place(*xs))
    return calls


def holds(arrays, tolerance=1e-5, cast=lambda x: x):
    import torch

    expected, expected_gradients = reference(*arrays)
    leaves = [torch.tensor(x, requires_grad=True) for x in arrays[:3]]
    found = scores.additive(*map(cast, leaves))
    gradients = torch.autograd.grad(found, leaves, cast(torch.tensor(arrays[3])))
    for x, e in zip([found, *gradients], [expected, *expected_gradients], strict=True):
        assert_close(x.detach().float(), e, tolerance)


@pytest.mark.parametrize(
    "sizes",
    [
        (3, 11, 7, 13),  # blocks of rows, the last ragged
        (19, 2, 3, 7),  # blocks of the batch, the last ragged
        (2, 3, 101, 13),  # blocks of keys, the last ragged
        (2, 3, 5, 997),  # a block of one vector
        (5, 1, 31, 17),
        (5, 31, 1, 17),
    ],
)
def test_scores_and_gradients_follow_the_formula(rng, taken, sizes):
    holds(inputs(rng, *sizes))
    assert taken


def test_what_exponentials_do_not_hold_is_by_tanh(rng, taken):
    query, key, scale, upstream = inputs(rng)
    shift = 25.0 * np.sign(query[0, 0])
    holds([query + shift, key - shift, scale, upstream], 2e-5)  # opposite values that cancel
    holds([query - 300, key, scale, upstream])
    holds(inputs(rng, size=1e4))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_half_precision_and_autocast_are_computed_in_float32(rng, taken, dtype, tolerance):
    import torch

    wide = getattr(torch, dtype)
    arrays = [torch.tensor(x).to(wide).float().numpy() for x in inputs(rng, units=509)]
    holds(arrays, tolerance, lambda x: x.to(wide))
    with torch.autocast("cpu", torch.bfloat16):
        holds(arrays)


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_are_those_of_the_formula_and_have_none_of_their_own(rng, taken, order):
    import torch

    leaves = [torch.tensor(x.astype("float64"), requires_grad=True) for x in inputs(rng)[:3]]

    def derivatives(function):
        found = function(*leaves).square().sum()
        for _ in range(order - 1):
            parts = torch.autograd.grad(found, leaves, create_graph=True)
            found = sum(g.square().sum() for g in parts)
        return torch.autograd.grad(found, leaves)

    def formula(query, key, scale):
        return torch.tanh(query.unsqueeze(2) + key.unsqueeze(1)) @ scale

    if order == 2:
        with pytest.raises(NotImplementedError, match=r"fast_paths\(False\)"):
            derivatives(scores.additive)
    else:
        for x, e in zip(derivatives(scores.additive), derivatives(formula), strict=True):
            assert_close(x, e, 1e-12)
    assert taken


def test_a_constant_query_has_no_gradient_and_the_others_do(rng, taken):
    import torch

    arrays = inputs(rng)
    query, key, scale = (torch.tensor(x, requires_grad=n > 0) for n, x in enumerate(arrays[:3]))
    found = scores.additive(query, key, scale)
    gradients = torch.autograd.grad(found, [key, scale], torch.tensor(arrays[3]))
    for x, e in zip(gradients, reference(*arrays)[1][1:], strict=True):
        assert_close(x, e)


def test_small_sizes_and_compiled_functions_are_not_in_place(rng):
    import torch

    large = [ops.ones(shape) for shape in [(8, 32, 64), (8, 32, 64), (64,)]]
    small = [ops.ones(shape) for shape in [(8, 16, 64), (8, 16, 64), (64,)]]
    assert switch.additive(*large) == "in_place"
    assert switch.additive(*small) == "formula"
    with fast_paths(False):
        assert switch.additive(*large) == "formula"
    arrays = [torch.tensor(x) for x in inputs(rng, 8, 32, 37, 64)[:3]]
    exported = torch.export.export(Scores(), tuple(arrays)).module()
    assert_close(exported(*arrays), array(scores.additive(*arrays)))


def Scores():
    import torch

    class Module(torch.nn.Module):
        def forward(self, query, key, scale):
            return scores.additive(query, key, scale)

    return Module()
