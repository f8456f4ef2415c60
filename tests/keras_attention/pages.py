"""The code of a page, run as it stands; padding changes no answer of the models in it."""

import re

import keras
import numpy as np

from tests.keras_attention.helpers import array, compiled

LENGTH, MORE = 4, 3


def blocks(page):
    """The Python blocks of a page of Markdown."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def run(block, where, names=None):
    """Run a block, with the names of blocks before it; return all names."""
    names = dict(names or {})
    exec(compile(block, str(where), "exec"), names)
    return names


def assert_padding_changes_nothing(names):
    """Compare answers of models with padding and without; return the number of models.

    Sequences are the inputs with axes of unknown length: integers are padded with 0, masks with
    False, numbers with anything.
    """
    functional = [x for x in names.values() if isinstance(x, keras.Model) and hasattr(x, "inputs")]
    models = {id(x): x for x in functional}
    checked = 0
    for model in models.values():
        open_axes = [any(size is None for size in x.shape[1:]) for x in model.inputs]
        tells = [
            keras.backend.standardize_dtype(x.dtype)[:3] in ("int", "boo") for x in model.inputs
        ]
        if any(a and b for a, b in zip(open_axes, tells, strict=True)):
            _assert_same(model)
            checked += 1
    return checked


def _assert_same(model):
    rng = np.random.default_rng(1)
    pairs = [_padded(x, rng) for x in model.inputs]

    def call(*inputs):
        return model(list(inputs) if len(inputs) > 1 else inputs[0])

    # Compiled as a whole by JAX: one program, where each operation were one.
    call = compiled(call) if keras.backend.backend() == "jax" else call
    short, long = (keras.tree.flatten(array(call(*x))) for x in zip(*pairs, strict=True))
    for expected, answer in zip(short, long, strict=True):
        assert np.isfinite(answer).all(), model.name
        answer = answer[tuple(slice(size) for size in expected.shape)]
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5, err_msg=model.name)
    nothing = call(*(x if x.dtype.kind == "f" else np.zeros_like(x) for _, x in pairs))
    assert all(np.isfinite(x).all() for x in keras.tree.flatten(array(nothing)))


def _padded(symbol, rng):
    """An input, and the same with padding."""
    shape = [2, *(LENGTH if size is None else size for size in symbol.shape[1:])]
    width = [[0, 0], *([0, MORE if size is None else 0] for size in symbol.shape[1:])]
    dtype = keras.backend.standardize_dtype(symbol.dtype)
    if dtype == "bool":
        return np.ones(shape, bool), np.pad(np.ones(shape, bool), width)
    if dtype.startswith("int"):
        short = rng.integers(1, 7, shape).astype(dtype)
        return short, np.pad(short, width)
    short = rng.normal(size=shape).astype(dtype)
    return short, np.pad(short, width, constant_values=3.0)
