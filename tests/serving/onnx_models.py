"""Tiny models of random weights, and their graphs in ONNX Runtime and in Node."""

import base64

import keras
import numpy as np
import onnxruntime

from serving.portable.engine._graphs import Numbers, read_graph
from serving.portable.engine._pack import join_parts
from serving.portable.write._graphs import write_graphs
from serving.portable.write._settings import ExportSettings
from tests.serving.javascript import run
from training.config.schema import load_preset, override
from training.data.tokens.store import END_ID
from training.decode.search import search
from training.decode.settings import SearchSettings
from training.model.seq2seq import build_seq2seq

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
SOURCE, TARGET = 19, 23
SIZES = (
    *("encoder_units=5", "decoder_units=7", "embedding_size=6", "attention_units=6"),
    *("readout_units=6", "tie_embeddings=false"),
)


def random_model(*settings, seed=3):
    """A model whose weights are large enough that its answers differ from one another."""
    config = override(load_preset("phrasebook-en-fr"), [*SIZES, *settings])
    model = build_seq2seq(config, SOURCE, TARGET)
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if "float" in weight.dtype:
            weight.assign(rng.normal(0, 0.6, weight.shape))
    if config.tie_embeddings is False:  # sentences end soon
        bias = np.zeros(TARGET, "float32")
        bias[END_ID] = 2.0
        aligns = config.attention == "hard_monotonic"
        output = model.get_layer("decoder").output_layer if aligns else model.get_layer("output")
        output.bias.assign(bias)
    return config, model


def random_ids(rows, length):
    """Rows of several lengths; the first is full."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, SOURCE, (rows, length))
    for row, size in zip(ids[1:], rng.integers(1, length + 1, rows - 1), strict=True):
        row[size:] = 0
    return ids


def losing_model():
    """A model and four sources, whose best hypothesis a later beam of four pushes out."""
    config, model = random_model()
    output = model.get_layer("output")
    output.kernel.assign(output.kernel * 6)
    output.bias.assign(np.zeros(TARGET))
    return config, model, random_ids(300, 7)[[23, 109, 179, 201]]


class Graphs:
    """The graphs of a model, or of several as an ensemble, in onnxruntime."""

    def __init__(self, config, model, folder, bits=32, others=()):
        parts = [(config, model), *others]
        weights = {32: "float32", 8: "int8"}[bits]
        self.about = write_graphs(parts, folder, ExportSettings(weights=weights))
        self.folder, self._sessions = folder, {}

    def run(self, graph, **inputs):
        if graph not in self._sessions:
            path = str(self.folder / f"{graph}.onnx")
            self._sessions[graph] = onnxruntime.InferenceSession(path)
        session = self._sessions[graph]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))

    def search(self, ids, width, results=1, penalty=1.0, weights=True):
        return self.run(
            "translator",
            ids=ids,
            beam_width=np.array([width]),
            num_results=np.array([results]),
            length_penalty=np.array(penalty, "float32"),
            with_weights=np.array([weights]),
        )


def in_node(graphs, ids, width, results, penalty=1.0):
    """Return hypotheses of each row, of products by vectors; those by loops are asserted alike."""
    given = {
        "file": base64.b64encode(file_of(graphs)).decode(),
        "rows": [row[row > 0].tolist() for row in ids],
        "asked": {"width": width, "results": results, "penalty": penalty},
    }
    vectors, loops = run(SEARCH, given=given)
    assert (vectors["kind"], loops["kind"]) == ("Vectors", "Loops")
    said = [[[one["ids"] for one in row] for row in found["rows"]] for found in (vectors, loops)]
    assert said[0] == said[1]
    return vectors["rows"]


def file_of(graphs):
    """The file of a model without tokenizers."""
    numbers = Numbers()
    read = {
        name: read_graph(graphs.folder / f"{name}.onnx", numbers) for name in ("encoder", "step")
    }
    header = {"graphs": read, "memory": graphs.about["memory"], "state": graphs.about["state"]}
    return join_parts({**header, "source": {}, "target": {}}, numbers)


def expected(model, ids, width, results=1, penalty=1.0, others=()):
    """Return the result of a search with the Keras model, or with several as an ensemble."""
    found = search(
        [model, *others],
        ids.astype("int32"),
        SearchSettings(width, results, penalty),
        return_attention_weights=True,
    )
    return [keras.ops.convert_to_numpy(x) for x in found]


def assert_same(found, wanted):
    """Compare a search in a graph with one of Keras, whose results may be padded further."""
    ids, lengths, scores, weights, log_probs = wanted
    np.testing.assert_array_equal(found["lengths"], lengths)
    time = found["found"].shape[2]
    np.testing.assert_array_equal(found["found"], ids[:, :, :time])
    assert not ids[:, :, time:].any()
    np.testing.assert_allclose(found["scores"], scores, atol=1e-4)
    np.testing.assert_allclose(found["weights"], weights[:, :, :time], atol=1e-4)
    np.testing.assert_allclose(found["log_probs"], log_probs[:, :, :time], atol=1e-4)


def assert_same_rows(rows, wanted, tolerance=1e-4):
    """Compare a search in Node, source by source, with one of Keras or of ONNX Runtime."""
    ids, lengths, scores, weights, _ = wanted
    for row, hypotheses in enumerate(rows):
        for number, one in enumerate(hypotheses):
            size, width = np.shape(one["weights"])
            assert size == len(one["ids"]) == lengths[row, number]
            assert one["ids"] == ids[row, number, :size].tolist()
            np.testing.assert_allclose(one["score"], scores[row, number], atol=tolerance)
            looked = weights[row, number, :size, :width]
            np.testing.assert_allclose(one["weights"], looked, atol=tolerance)
