"""The browser's runtime, in Node, against ONNX Runtime: every kind of model, searched alike."""

import base64
import os
import subprocess

import numpy as np
import onnx
import pytest

from serving.portable.engine.graphs import OPERATORS, Numbers, read_graph
from serving.portable.engine.pack import join_parts
from tests.serving.javascript import ENGINE, needs_node, run
from tests.serving.onnx_models import Graphs, expected, losing_model, random_ids, random_model
from tests.serving.portable.write.test_onnx_graphs import MODELS

SEARCH = """
import { readFileSync } from "node:fs";
import { readModel } from "engine/model.js";
import { makeProducts } from "engine/products.js";
import { search } from "engine/search.js";
import { tensor } from "engine/tensors.js";
const { file, rows, asked } = JSON.parse(readFileSync(0, "utf8"));
const buffer = Uint8Array.from(Buffer.from(file, "base64")).buffer;
const found = [true, false].map((vectors) => {
  const products = makeProducts(vectors);
  const model = readModel(buffer, products);
  const kind = products.constructor.name;
  const source = (ids) => ({ ids: tensor(Int32Array.from(ids), [1, ids.length]) });
  return { kind, rows: rows.map((ids) => search(model, source(ids), 2 * ids.length + 10, asked)) };
});
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
process.stdout.write(JSON.stringify(found, plain));
"""


def file_of(graphs):
    """The file of a model without tokenizers."""
    numbers = Numbers()
    read = {name: read_graph(graphs.folder / f"{name}.onnx", numbers) for name in GRAPHS}
    header = {"graphs": read, "memory": graphs.about["memory"], "state": graphs.about["state"]}
    return join_parts({**header, "source": {}, "target": {}}, numbers)


GRAPHS = ("encoder", "step")
ENSEMBLE = "an ensemble"
# Together they have every operator.
THIRTY_TWO = ["lstm, general", "rnn, dot", "without attention", "local-p of two heads"]
THIRTY_TWO += ["location-sensitive", "chunkwise", "hard monotonic", "sparsemax", "entmax", ENSEMBLE]
EIGHT = ["gru, additive", "bahdanau, deep, fed, gated"]


@needs_node
@pytest.mark.parametrize(
    ("name", "bits"), [*((name, 32) for name in THIRTY_TWO), *((name, 8) for name in EIGHT)]
)
def test_a_search_finds_what_onnx_runtime_finds(name, bits, tmp_path):
    others = [random_model("encoder=lstm", "decoder=lstm", seed=5)] if name == ENSEMBLE else []
    graphs = Graphs(*random_model(*MODELS.get(name, [])), tmp_path, bits, others)
    ids = random_ids(5, 7)
    wanted = graphs.search(ids, 3, 2, penalty=0.8)
    given = {
        "file": base64.b64encode(file_of(graphs)).decode(),
        "rows": [row[row > 0].tolist() for row in ids],
        "asked": {"width": 3, "results": 2, "penalty": 0.8},
    }
    vectors, loops = run(SEARCH, given=given)
    assert (vectors["kind"], loops["kind"]) == ("Vectors", "Loops")
    for found in (vectors, loops):
        for row, hypotheses in enumerate(found["rows"]):
            length = sum(ids[row] > 0) if name != "without attention" else 1
            for number, one in enumerate(hypotheses):
                size = len(one["ids"])
                assert wanted["lengths"][row, number] == size
                assert wanted["found"][row, number, :size].tolist() == one["ids"]
                # A last bit may turn a rounding to eight bits.
                near = 1e-4 if bits == 32 else 0.02
                np.testing.assert_allclose(one["score"], wanted["scores"][row, number], atol=near)
                weights = wanted["weights"][row, number, :size, :length]
                np.testing.assert_allclose(one["weights"], weights, atol=near)


@needs_node
def test_what_has_ended_stays_among_the_results(tmp_path):
    config, model, ids = losing_model()
    wanted_ids, lengths, wanted, *_ = expected(model, ids, 4, 3)
    given = {
        "file": base64.b64encode(file_of(Graphs(config, model, tmp_path))).decode(),
        "rows": [row[row > 0].tolist() for row in ids],
        "asked": {"width": 4, "results": 3, "penalty": 1.0},
    }
    found = run(SEARCH, given=given)[0]["rows"]
    scores = [[one["score"] for one in row] for row in found]
    np.testing.assert_allclose(scores, wanted, atol=1e-4)
    for row, hypotheses in enumerate(found):
        for number, one in enumerate(hypotheses):
            assert one["ids"] == wanted_ids[row, number, : lengths[row, number]].tolist()


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
    const { x, kernel, n, k, m, whole } = JSON.parse(readFileSync(0, "utf8"));
    const found = [true, false].map((vectors) => {
      const products = makeProducts(vectors);
      const placed = products.place((whole ? Int8Array : Float32Array).from(kernel), k, m);
      return Array.from(products.times((whole ? Uint8Array : Float32Array).from(x), n, placed));
    });
    process.stdout.write(JSON.stringify(found));
    """
    for whole, n, k, m in ((False, 1, 3, 5), (False, 701, 803, 2), (True, 7, 13, 11)):
        x = rng.integers(0, 256, (n, k)) if whole else rng.normal(size=(n, k)).astype("float32")
        kernel = rng.integers(-127, 128, (k, m)) if whole else rng.normal(size=(k, m))
        kernel[:, -1] = 0
        wanted = (x - 128 if whole else x) @ kernel
        given = {"x": x.ravel().tolist(), "kernel": kernel.T[:-1].ravel().tolist()}
        found = run(multiply, given={**given, "n": n, "k": k, "m": m, "whole": whole})
        for one in found:
            np.testing.assert_allclose(one, wanted.ravel(), atol=0 if whole else 1e-4)


@pytest.mark.skipif("PAGE_KERNEL" not in os.environ, reason="PAGE_KERNEL=1 asks npm for asc")
def test_the_kernel_is_what_its_source_gives(tmp_path):
    built = tmp_path / "kernel.js"
    root = ENGINE.parents[2]
    subprocess.run(["make", "--silent", "page-kernel", f"OUTPUT={built}"], cwd=root, check=True)
    assert built.read_text() == (ENGINE / "kernel.js").read_text()
