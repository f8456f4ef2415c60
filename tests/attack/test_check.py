"""Models that must not pass the export check, and what the check must survive."""

import os
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from serving.check.apart import check
from serving.check.version import check_graph, check_version, read_meta_graph
from tests.serving.conftest import save_upper

X = tf.TensorSpec([None], tf.float32, name="x")
TEXT = tf.TensorSpec([None], tf.string, name="text")


def save(path, function, spec=TEXT, **tracked):
    """A SavedModel with one signature; returns the version directory."""
    module = tf.Module()
    for name, value in tracked.items():
        setattr(module, name, value)
    function = tf.function(function).get_concrete_function(spec)
    tf.saved_model.save(module, str(path), signatures={"serving_default": function})
    return path


def the_finding(path):
    (finding,) = check_version(path)
    return finding


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, rng, value):
    values = rng.normal(size=(37, 53)).astype("float32")
    values[3, 5] = value
    kernel = tf.Variable(values)
    path = save(
        tmp_path / "1",
        lambda x: {"y": x + tf.reduce_sum(tf.math.multiply_no_nan(kernel, 0.0 * kernel[:1, :1]))},
        X,
        kernel=kernel,
    )
    assert the_finding(path) == "weights not finite: kernel has 1 of 1,961 values"


def test_a_constant_that_is_not_finite_is_refused(tmp_path, rng):
    values = rng.normal(size=(37, 53)).astype("float32")
    values[3, 5] = np.nan
    path = save(tmp_path / "1", lambda x: {"y": x + tf.constant(values)[0, 0]}, X)
    assert "not finite: constant" in the_finding(path)


def test_outputs_that_are_nan_are_refused(tmp_path):
    path = save(tmp_path / "1", lambda x: {"y": x * np.nan}, X)
    assert the_finding(path) == "signature serving_default, output y: NaN on a batch of 1"


def test_outputs_that_are_infinite_are_no_matter(tmp_path):
    path = save(tmp_path / "1", lambda x: {"y": tf.math.log(x * 0.0)}, X)
    assert check_version(path) == []


@pytest.mark.parametrize(
    ("function", "spec"),
    [
        (lambda text: {"translation": tf.strings.upper(text)[::-1]}, TEXT),
        (
            lambda text: {
                "translation": tf.strings.upper(text)[::-1],
                "score": tf.zeros_like(tf.strings.length(text), tf.float32),
            },
            TEXT,
        ),
        (
            lambda text: {
                "translation": tf.roll(text, 1, 0),
                "score": tf.cast(tf.strings.length(text), tf.float32),
            },
            TEXT,
        ),
        (lambda x: {"y": tf.sort(x)}, X),
    ],
)
def test_rows_in_another_order_are_refused(tmp_path, function, spec):
    assert "rows are in another order on a batch of" in the_finding(
        save(tmp_path / "1", function, spec)
    )


@pytest.mark.parametrize(
    ("function", "spec"),
    [
        (lambda x: {"y": x - tf.reduce_mean(x)}, X),
        (lambda x: {"y": x / tf.cast(tf.size(x), tf.float32)}, X),
        (lambda text: {"translation": text + tf.strings.as_string(tf.size(text))}, TEXT),
        (
            lambda text: {
                "translation": text + tf.strings.as_string(tf.size(text)),
                "score": tf.zeros_like(tf.strings.length(text), tf.float32),
            },
            TEXT,
        ),
    ],
)
def test_rows_that_depend_on_their_batch_are_refused(tmp_path, function, spec):
    finding = the_finding(save(tmp_path / "1", function, spec))
    assert "is not what it answers alone: it depends on its batch" in finding


def test_a_model_that_fails_on_a_lone_empty_text_is_refused(tmp_path):
    def read(text):
        nothing = tf.reduce_all(text == "") & (tf.size(text) > 0)
        with tf.control_dependencies([tf.debugging.assert_equal(nothing, False)]):
            return {"y": tf.identity(text)}

    finding = the_finding(save(tmp_path / "1", read))
    assert "fails on empty, long and invalid texts: row 0 alone" in finding


@pytest.mark.parametrize("where", ["signature", "branch", "initializer"])
def test_a_model_that_writes_files_is_refused_and_not_run(tmp_path, where):
    target = tmp_path / "written"
    module = tf.Module()

    def write(text):
        with tf.control_dependencies([tf.io.write_file(str(target), "here")]):
            return {"y": tf.identity(text)}

    def branch(text):
        return {"y": tf.cond(tf.size(text) > 1000, lambda: write(text)["y"], lambda: text)}

    function = {"signature": write, "branch": branch, "initializer": lambda text: {"y": text}}
    concrete = tf.function(function[where]).get_concrete_function(TEXT)
    path = tmp_path / "1"
    tf.saved_model.save(module, str(path), signatures={"serving_default": concrete})
    if where == "initializer":  # of the kind that the loader runs
        file = path / "saved_model.pb"
        model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
        graph = model.meta_graphs[0].graph_def
        for name, value in (("to", str(target).encode()), ("what", b"here")):
            node = graph.node.add(name=name, op="Const")
            node.attr["dtype"].type = tf.string.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        graph.node.add(name="bad", op="WriteFile", input=["to", "what"])
        model.meta_graphs[0].signature_def["__saved_model_init_op"].outputs[
            "__saved_model_init_op"
        ].name = "bad"
        file.write_bytes(model.SerializeToString())
    findings = check_version(path)
    assert findings
    assert all("it writes files" in finding for finding in findings)
    assert not target.exists()


def test_a_model_that_reads_the_files_it_is_asked_for_is_refused(tmp_path):
    path = save(tmp_path / "1", lambda text: {"y": tf.map_fn(tf.io.read_file, text)})
    assert "op ReadFile" in the_finding(path)
    assert the_finding(path).endswith("it reads files")


def test_a_vocabulary_that_is_read_as_the_version_loads_is_no_matter(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\n")
    table = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            str(words),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        -1,
    )
    path = save(tmp_path / "1", lambda text: {"y": table.lookup(text)}, table=table)
    assert check_version(path) == []


@pytest.mark.parametrize("name", ["latest", "1.5", "-1", "¹"])
def test_a_directory_that_no_server_finds_is_refused(tmp_path, name):
    path = save_upper(tmp_path / name)
    assert the_finding(path) == (
        f"a server would not find it: {name} is not the number of a version"
    )


def test_a_relative_path_is_the_version_it_leads_to(tmp_path, monkeypatch):
    path = save_upper(tmp_path / "upper" / "1")
    monkeypatch.chdir(path)
    assert check_version(type(path)(".")) == []


def test_rows_of_80_megabytes_are_refused(tmp_path):
    path = save(tmp_path / "1", lambda x: {"y": x[:, None] + tf.zeros([1, 20_000_000])}, X)
    assert the_finding(path) == (
        "signature serving_default, output y: 80,000,000 bytes on a batch of 1; more than "
        "67,108,864 a row"
    )


def forever(x):
    return {"y": tf.while_loop(lambda x: tf.constant(True), lambda x: (x + 1.0,), (x,))[0]}


def test_a_model_that_never_ends_is_ended(tmp_path):
    path = save(tmp_path / "1", forever, X)
    started = time.monotonic()
    (finding,) = check(path, step_seconds=5)
    assert finding.endswith("it did not end within 5 s")
    assert time.monotonic() - started < 150
    assert not any(str(path).encode() in line for line in command_lines())


def command_lines():
    """Of all processes."""
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                yield file.read()
        except OSError:
            continue


def test_a_model_that_ends_its_process_is_refused_in_one_line(tmp_path):
    def abort(x):
        with tf.control_dependencies([tf.raw_ops.Abort(error_msg="on purpose")]):
            return {"y": tf.identity(x)}

    (finding,) = check(save(tmp_path / "1", abort, X))
    assert finding.startswith("signature serving_default on a batch of 1: the process that ran it")
    assert "SIGABRT" in finding


def test_names_that_steer_a_terminal_are_shown_in_one_line(tmp_path):
    path = save(tmp_path / "1", lambda x: {"y": tf.reduce_sum(x)}, X)
    meta_graph = read_meta_graph(path)
    signature = meta_graph.signature_def["serving_default"]
    signature.outputs["\x1b[2J\n\u2028é"].CopyFrom(signature.outputs["y"])
    node = meta_graph.graph_def.node.add(name="odd", op="No\nSuch\rOp")
    assert node.op == "No\nSuch\rOp"
    findings = check_graph(meta_graph)
    assert len(findings) == 4
    assert findings[0].startswith(r"op No\nSuch\rOp: TensorFlow Serving")
    assert findings[1].startswith(r"signature serving_default, output \x1b[2J\n\u2028é: a scalar")
    named = r"signature serving_default: the name \x1b[2J\n\u2028é holds control characters"
    assert findings[3] == named


@pytest.mark.parametrize("where", ["signature", "input", "output"])
def test_names_with_control_characters_are_refused(tmp_path, where):
    path = save(tmp_path / "1", lambda x: {"y": x + 1.0}, X)
    file = path / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    signatures = model.meta_graphs[0].signature_def
    held = {
        "signature": signatures,
        "input": signatures["serving_default"].inputs,
        "output": signatures["serving_default"].outputs,
    }[where]
    name = "a\x1b]0;title\x07"
    for old in [old for old in held if not old.startswith("__")]:
        held[name].CopyFrom(held[old])
        del held[old]
    file.write_bytes(model.SerializeToString())
    assert the_finding(path).endswith(r"the name a\x1b]0;title\x07 holds control characters")


@pytest.mark.parametrize("kind", ["assign", "add", "scatter", "branch", "table"])
def test_signatures_that_change_what_later_requests_meet_are_refused(tmp_path, kind):
    total = tf.Variable(tf.zeros([3]))
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

    def answer(text):
        if kind == "assign":
            total.assign(tf.ones([3]))
        elif kind == "add":
            total.assign_add(tf.ones([3]))
        elif kind == "scatter":
            total.scatter_nd_update([[1]], [2.0])
        elif kind == "branch":
            tf.cond(tf.size(text) > 1000, lambda: total.assign(tf.ones([3])), lambda: total + 0)
        else:
            table.insert(text, tf.zeros_like(tf.strings.length(text), tf.int64))
        return {"y": text}

    path = save(tmp_path / "1", answer, total=total, table=table)
    assert the_finding(path).endswith("a request changes what later ones meet")


def test_no_damage_to_a_graph_stops_the_look_at_it(tmp_path):
    """Bytes are changed, cut out and doubled, many times over, seeded."""
    rng = np.random.default_rng(17)
    path = save_upper(tmp_path / "1")
    file = path / "saved_model.pb"
    whole = file.read_bytes()
    read = 0
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            match rng.choice(3, p=[0.8, 0.1, 0.1]):
                case 0:
                    data[at] = rng.integers(256)
                case 1:
                    del data[at : at + int(rng.integers(1, 50))]
                case 2:
                    data[at:at] = data[at : at + int(rng.integers(1, 50))]
        file.write_bytes(data)
        found = read_meta_graph(path)
        if isinstance(found, str):
            assert found.isprintable()
        else:
            read += 1
            assert all(finding.isprintable() for finding in check_graph(found))
    assert read > 20
