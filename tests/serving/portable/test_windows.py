"""Windows of long words are those of one table in TensorFlow, Python and JavaScript."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_attention import SearchResult
from serving.portable.read import _windows as in_python
from serving.portable.read._model import Result
from tests.serving.javascript import call, needs_node
from training.decode import windows as in_tensorflow

TABLE = json.loads(Path(__file__).with_name("windows.json").read_text(encoding="utf-8"))


def ids_of(case):
    return [*case.get("front", []), *range(4, 4 + case["letters"])]


def in_numbers(window):
    return [window[name] for name in ("start", "stop", "first", "end")]


def own_ids(case, window):
    """The ids of a window of the table."""
    ids, tag = ids_of(case), case.get("tag", 0)
    return [*ids[:tag], *ids[tag + window["start"] : tag + window["stop"]]]


def spelling_of(case):
    return in_tensorflow.Spelling(**{"fewest": 0.0, **case["spelling"]})


def arrays(hypotheses, width):
    """Ids, log-probabilities, scores and weights of hypotheses: `(N, T)`, `(N)`, `(N, T, S)`."""
    longest = max(len(each["tokens"]) for each in hypotheses)
    ids, gains = np.zeros((2, len(hypotheses), longest))
    weights = np.zeros((len(hypotheses), longest, width), "float32")
    for n, each in enumerate(hypotheses):
        for t, (number, place, gain) in enumerate(each["tokens"]):
            ids[n, t], gains[n, t], weights[n, t, place] = number, gain, 1.0
    scores = np.array([each["score"] for each in hypotheses], "float32")
    return ids.astype("int64"), gains.astype("float32"), scores, weights


def tokens_of(ids, gains, weights):
    """The tokens of a row, as the table has them."""
    rows = zip(ids, np.argmax(weights, axis=-1), gains, strict=True)
    return [[int(number), int(place), float(gain)] for number, place, gain in rows if number]


@pytest.mark.parametrize("case", TABLE["cut"], ids=str)
def test_python_cuts_as_the_table(case):
    ids = ids_of(case)
    found = in_python.cut(ids, case["spelling"]) if ids else []
    assert [[x.start, x.start + len(x.ids) - x.tag, x.core.start, x.core.stop] for x in found] == [
        in_numbers(window) for window in case["windows"]
    ]
    assert [list(x.ids) for x in found] == [own_ids(case, window) for window in case["windows"]]
    assert {x.tag for x in found} <= {case.get("tag", 0)}


def test_tensorflow_cuts_as_the_table():
    for case in TABLE["cut"]:
        if not ids_of(case) or not case["spelling"]:
            continue
        found = in_tensorflow.windows(tf.constant([ids_of(case)], "int32"), spelling_of(case))
        count = int(tf.reduce_sum(tf.cast(found.needed, "int32")))
        starts, cores, ids = found.starts.numpy(), found.cores.numpy(), found.ids.numpy()
        tag = int(found.tags[0, 0])
        rows = [
            [starts[0, k], starts[0, k] + np.count_nonzero(ids[k]) - tag, *cores[0, k]]
            for k in range(count)
        ]
        assert rows == [in_numbers(window) for window in case["windows"]], case
        own = [list(row[row > 0]) for row in ids]
        assert own == [own_ids(case, window) for window in case["windows"]], case
        assert tag == case.get("tag", 0), case


def test_tensorflow_cuts_a_batch_as_single_words():
    spelling = next(case["spelling"] for case in TABLE["cut"] if case.get("tag") == 5)
    cases = [case for case in TABLE["cut"] if case["spelling"] == spelling]
    spelling = spelling_of(cases[0])
    batch = tf.ragged.constant([ids_of(case) for case in cases], dtype="int32").to_tensor()
    together, under_xla = (
        make(batch)
        for make in (
            lambda ids: in_tensorflow.windows(ids, spelling),
            tf.function(lambda ids: in_tensorflow.windows(ids, spelling), jit_compile=True),
        )
    )
    for found in together, under_xla:
        ids = tf.reshape(found.ids, [len(cases), -1, found.ids.shape[1]]).numpy()
        for n, case in enumerate(cases):
            own = [list(row[row > 0]) for row, k in zip(ids[n], found.needed[n], strict=True) if k]
            assert own == [own_ids(case, window) for window in case["windows"]], case
            assert not ids[n][~found.needed.numpy()[n]].any()


@needs_node
def test_javascript_cuts_as_the_table():
    found = call("engine/windows.js", "cut", [[ids_of(c), c["spelling"]] for c in TABLE["cut"]])
    for case, windows in zip(TABLE["cut"], found, strict=True):
        rows = [
            [x["start"], x["start"] + len(x["ids"]) - x["tag"], x["first"], x["end"]]
            for x in windows
        ]
        assert rows == [in_numbers(window) for window in case["windows"]], case
        assert [x["ids"] for x in windows] == [own_ids(case, each) for each in case["windows"]]
        assert {x["tag"] for x in windows} <= {case.get("tag", 0)}


@pytest.mark.parametrize("case", TABLE["join"], ids=["several", "equal", "tag", "only tag"])
def test_python_joins_as_the_table(case):
    windows = in_python.cut(ids_of(case), case["spelling"])
    parts = [
        Result(*arrays(each, len(window.ids)))
        for window, each in zip(windows, case["found"], strict=True)
    ]
    joined = in_python.join(windows, parts)
    rows = zip(joined.ids, joined.log_probs, joined.scores, joined.weights, strict=True)
    assert [
        {"score": float(score), "tokens": tokens_of(ids, gains, weights)}
        for ids, gains, score, weights in rows
    ] == case["joined"]


@pytest.mark.parametrize("case", TABLE["join"], ids=["several", "equal", "tag", "only tag"])
def test_tensorflow_joins_as_the_table(case):
    parts = in_tensorflow.windows(tf.constant([ids_of(case)], "int32"), spelling_of(case))
    width = parts.ids.shape[1]
    each = [arrays(found, width) for found in case["found"]]
    longest = max(ids.shape[1] for ids, *_ in each)
    room = [(0, 0), (0, longest)]
    ids, gains, weights = (
        np.stack([np.pad(x[n], [*room, (0, 0)][: x[n].ndim])[:, :longest] for x in each])
        for n in (0, 1, 3)
    )
    scores = np.stack([scores for _, _, scores, _ in each])
    lengths = (ids != 0).sum(-1).astype("int32")
    result = SearchResult(*map(tf.constant, (ids.astype("int32"), lengths, scores, weights, gains)))
    joined = in_tensorflow.join(result, parts)
    assert [
        {"score": float(score), "tokens": tokens_of(*row)}
        for score, *row in zip(
            joined.scores.numpy()[0],
            joined.ids.numpy()[0],
            joined.log_probs.numpy()[0],
            joined.attention_weights.numpy()[0],
            strict=True,
        )
    ] == case["joined"]


@needs_node
def test_javascript_joins_as_the_table():
    given = []
    for case in TABLE["join"]:
        windows = call("engine/windows.js", "cut", [[ids_of(case), case["spelling"]]])[0]
        found = []
        for window, hypotheses in zip(windows, case["found"], strict=True):
            rows = zip(*arrays(hypotheses, len(window["ids"])), strict=True)
            found.append([])
            for ids, gains, score, weights in rows:
                count = np.count_nonzero(ids)
                lists = (x[:count].tolist() for x in (ids, gains, weights))
                one = dict(zip(("ids", "logProbs", "weights"), lists, strict=True))
                found[-1].append({**one, "score": float(score)})
        given.append([windows, found, case["results"]])
    for case, joined in zip(TABLE["join"], call("engine/windows.js", "join", given), strict=True):
        rows = [(x["score"], x["ids"], x["logProbs"], x["weights"]) for x in joined]
        assert [{"score": s, "tokens": tokens_of(*row)} for s, *row in rows] == case["joined"]
