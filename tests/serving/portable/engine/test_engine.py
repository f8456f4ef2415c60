"""The browser's runtime, in Node: its operators and products."""

import numpy as np
import onnx
import pytest

from serving.portable.engine._graphs import OPERATORS, Numbers, read_graph
from tests.serving.javascript import needs_node, run


def test_a_graph_with_another_operator_is_refused(tmp_path):
    node = onnx.helper.make_node("Erf", ["x"], ["y"])
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [3]) for n in "xy"]
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", info[:1], info[1:])),
        tmp_path / "step.onnx",
    )
    with pytest.raises(ValueError, match=r"without a form in JavaScript: Erf$"):
        read_graph(tmp_path / "step.onnx", Numbers())
    (tmp_path / "step.onnx").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="cannot be read"):
        read_graph(tmp_path / "step.onnx", Numbers())


@needs_node
def test_the_operators_that_are_let_through_are_those_that_run():
    names = """
    import { OPERATORS } from "engine/operators.js";
    process.stdout.write(JSON.stringify(Object.keys(OPERATORS)));
    """
    assert {*run(names), "Scan"} == OPERATORS


@needs_node
def test_rows_of_any_number_and_width_are_multiplied(rng):
    """More rows than go in at once, widths that fill no vector, and zeros left out at the end."""
    multiply = """
    import { readFileSync } from "node:fs";
    import { makeProducts } from "engine/products.js";
    const both = ({ x, kernel, n, k, m, whole }) => [true, false].map((vectors) => {
      const products = makeProducts(vectors);
      const placed = products.place((whole ? Int8Array : Float32Array).from(kernel), k, m);
      return Array.from(products.times((whole ? Uint8Array : Float32Array).from(x), n, placed));
    });
    process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(both)));
    """
    given, products = [], []
    for whole, n, k, m in ((False, 1, 3, 5), (False, 701, 803, 2), (True, 7, 13, 11)):
        x = rng.integers(0, 256, (n, k)) if whole else rng.normal(size=(n, k)).astype("float32")
        kernel = rng.integers(-127, 128, (k, m)) if whole else rng.normal(size=(k, m))
        kernel[:, -1] = 0
        products.append(((x - 128 if whole else x) @ kernel).ravel())
        sizes = {"n": n, "k": k, "m": m, "whole": whole}
        given.append({"x": x.ravel().tolist(), "kernel": kernel.T[:-1].ravel().tolist(), **sizes})
    for found, wanted in zip(run(multiply, given=given), products, strict=True):
        for one in found:
            np.testing.assert_allclose(one, wanted, atol=1e-4)
