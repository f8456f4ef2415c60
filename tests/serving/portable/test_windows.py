"""Windows of long words, and length norms: one table for TensorFlow, Python and JavaScript."""

import json
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_attention import SearchResult
from keras_attention.search import length_norm
from serving.portable.read import _model as model
from serving.portable.read import _windows as in_python
from serving.portable.read._model import Result
from tests.serving.javascript import NODE, call, needs_node
from training.decode import windows as in_tensorflow

TABLE = json.loads(Path(__file__).with_name("windows.json").read_text(encoding="utf-8"))


def ids_of(case):
    return [*case.get("front", []), *range(4, 4 + case["letters"])]


def wanted_of(case):
    """The windows of a case: first and last letter, the letters that are kept, and the ids."""
    ids, tag = ids_of(case), case.get("tag", 0)
    for window in case["windows"]:
        start, stop, first, end = (window[name] for name in ("start", "stop", "first", "end"))
        yield start, stop, first, end, [*ids[:tag], *ids[tag + start : tag + stop]], tag


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


def cut_by_python(cases):
    for case in cases:
        ids = ids_of(case)
        yield [
            (x.start, x.start + len(x.ids) - x.tag, x.core.start, x.core.stop, [*x.ids], x.tag)
            for x in (in_python.cut(ids, case["spelling"]) if ids else [])
        ]


def cut_by_tensorflow(cases):
    for case in cases:
        if not ids_of(case) or not case["spelling"]:
            yield [*wanted_of(case)]  # it has no such words
            continue
        found = in_tensorflow.windows(tf.constant([ids_of(case)], "int32"), spelling_of(case))
        tag, rows = int(found.tags[0, 0]), found.ids.numpy()
        starts, cores = found.starts.numpy()[0], found.cores.numpy()[0]
        own = [list(row[row > 0]) for row in rows if row.any()]
        assert len(own) == int(tf.reduce_sum(tf.cast(found.needed, "int32")))
        yield [
            (start, start + len(ids) - tag, *core, ids, tag)
            for start, core, ids in zip(starts, cores.tolist(), own, strict=False)
        ]


def cut_by_javascript(cases):
    names = itemgetter("start", "first", "end", "ids", "tag")
    given = [[ids_of(case), case["spelling"]] for case in cases]
    for windows in call("engine/windows.js", "cut", given):
        yield [
            (start, start + len(ids) - tag, first, end, ids, tag)
            for start, first, end, ids, tag in map(names, windows)
        ]


@pytest.mark.parametrize(
    "cut", [cut_by_python, cut_by_tensorflow, pytest.param(cut_by_javascript, marks=needs_node)]
)
def test_words_are_cut_as_the_table(cut):
    for case, found in zip(TABLE["cut"], cut(TABLE["cut"]), strict=True):
        assert found == [*wanted_of(case)], case


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
            assert own == [ids for *_, ids, _ in wanted_of(case)], case
            assert not ids[n][~found.needed.numpy()[n]].any()


def row(score, ids, gains, weights):
    return {"score": float(score), "tokens": tokens_of(ids, gains, weights)}


def join_by_python(case):
    windows = in_python.cut(ids_of(case), case["spelling"])
    parts = [
        Result(*arrays(each, len(window.ids)))
        for window, each in zip(windows, case["found"], strict=True)
    ]
    joined = in_python.join(windows, parts)
    return map(row, joined.scores, joined.ids, joined.log_probs, joined.weights)


def join_by_tensorflow(case):
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
    named = joined.scores, joined.ids, joined.log_probs, joined.attention_weights
    return map(row, *(x.numpy()[0] for x in named))


def join_by_javascript(case):
    windows = call("engine/windows.js", "cut", [[ids_of(case), case["spelling"]]])[0]
    found = []
    for window, hypotheses in zip(windows, case["found"], strict=True):
        found.append([])
        for ids, gains, score, weights in zip(*arrays(hypotheses, len(window["ids"])), strict=True):
            count = np.count_nonzero(ids)
            lists = (x[:count].tolist() for x in (ids, gains, weights))
            one = dict(zip(("ids", "logProbs", "weights"), lists, strict=True))
            found[-1].append({**one, "score": float(score)})
    (joined,) = call("engine/windows.js", "join", [[windows, found, case["results"]]])
    return [row(x["score"], x["ids"], x["logProbs"], x["weights"]) for x in joined]


@pytest.mark.parametrize(
    "join", [join_by_python, join_by_tensorflow, pytest.param(join_by_javascript, marks=needs_node)]
)
@pytest.mark.parametrize("case", TABLE["join"], ids=["several", "equal", "tag", "only tag"])
def test_answers_are_joined_as_the_table(case, join):
    assert [*join(case)] == case["joined"]


# Length, penalty and the divisor of Wu et al. 2016, eq. 14, by hand; `test_search` has ONNX.
NORMS = [(1, 0.7, 1.0), (7, 1.0, 2.0), (13, 0.5, 3**0.5), (19, 2.0, 16.0), (31, 0.0, 1.0)]


def test_every_language_divides_by_the_papers_norm():
    for length, penalty, norm in NORMS:
        found = np.asarray(length_norm([length, 1], penalty))
        assert found == pytest.approx([norm, 1], rel=1e-6)
        assert model.length_norm(length, penalty) == pytest.approx(norm)
    if NODE:
        found = call("engine/search.js", "lengthNorm", [row[:2] for row in NORMS])
        assert found == pytest.approx([norm for *_, norm in NORMS])
