import contextlib
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention import AdditiveAttention, exporting
from serving.check import __main__ as check
from serving.check._graph import check_graph, read_meta_graph
from serving.check._version import check_version

X = tf.TensorSpec([None], tf.float32, name="x")


def save(path, function, *specs, **tracked):
    """A SavedModel with one signature; returns the version directory."""
    module = tf.Module()
    for name, value in tracked.items():
        setattr(module, name, value)
    function = tf.function(function).get_concrete_function(*(specs or (X,)))
    tf.saved_model.save(module, str(path), signatures={"serving_default": function})
    return path


@pytest.fixture
def upper(saved, tmp_path):
    """A copy of the translator, to be spoilt."""
    return shutil.copytree(saved / "upper", tmp_path / "upper" / "1")


def test_a_model_without_texts_passes(saved, tmp_path):
    assert check_version(shutil.copytree(saved / "half", tmp_path / "1")) == []


def test_the_command_says_ready_or_fails_with_a_line_a_finding(upper, capsys, monkeypatch):
    stages = {}
    tell = contextlib.nullcontext(stages.__setitem__)
    monkeypatch.setattr(check, "stages", lambda first: tell)
    assert check.main([str(upper)]) == 0
    assert capsys.readouterr().out == f"{upper}: ready to serve\n"
    assert all(0 < share < 1 for share in stages.values())
    assert "asking for translate" in stages
    (upper / "variables" / "variables.index").unlink()
    assert check.main([str(upper)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(("TensorFlow's C++ loader rejects", "the version is not comp"))


def test_a_saved_model_that_only_python_can_load_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    module = tf.Module()
    module.model = model
    function = tf.function(lambda x: {"y": model(x)}).get_concrete_function(
        tf.TensorSpec([None, 3], tf.float32, name="x")
    )
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"serving_default": function})
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    assert loaded(x=tf.zeros([5, 3]))["y"].shape == (5, 2)
    findings = check_version(tmp_path / "1")
    assert len(findings) == 1
    assert "ould not find variable" in findings[0]


@pytest.mark.parametrize("aware", [False, True])
def test_xla_is_found_where_somebody_exports_layers_of_this_library(tmp_path, aware):
    layer = AdditiveAttention(64)
    x = tf.TensorSpec([8, 48, 16], tf.float32, name="x")  # nothing is left open: XLA compiles
    layer.build(x.shape, x.shape)
    module = tf.Module()
    module.weights = [weight.value for weight in layer.weights]
    with exporting() if aware else contextlib.nullcontext():
        function = tf.function(lambda x: {"y": layer(x, x)}).get_concrete_function(x)
        tf.saved_model.save(module, str(tmp_path / "1"), signatures={"serving_default": function})
    findings = check_graph(read_meta_graph(tmp_path / "1"))
    if aware:
        assert findings == []
    else:
        (finding,) = findings
        assert finding.startswith("XLA is compiled in")
        assert finding.endswith(
            "trace layers of keras_attention within keras_attention.exporting()"
        )


def test_an_attribute_that_the_stock_server_does_not_know_is_refused(upper):
    from tensorflow.core.protobuf import saved_model_pb2

    file = upper / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    node = model.meta_graphs[0].graph_def.node.add(name="extra", op="TensorListGetItem")
    node.attr["Tshape"].type = tf.int64.as_datatype_enum
    file.write_bytes(model.SerializeToString())
    assert check_version(upper) == [
        "op TensorListGetItem: TensorFlow Serving 2.20 does not know its attribute Tshape"
    ]


def first_word(text):
    return {"y": tf.strings.split(text).to_tensor("")[:, 0]}


def share_missing(time, bili):
    return {"y": tf.reduce_mean(tf.cast(tf.math.is_nan(time), tf.float32), 1)}


def noisy(x):  # whatever seed other tests have set
    noise = tf.raw_ops.RandomUniform(shape=tf.constant([], tf.int32), dtype=tf.float32)
    return {"y": x + 1000.0 * noise}


def decoded(text):
    return {"y": tf.map_fn(lambda image: tf.raw_ops.DecodeJxl(contents=image), text, tf.uint8)}


def careless(image_bytes):
    return {"score": tf.zeros_like(tf.strings.length(image_bytes), tf.float32)}


TEXT, IMAGES = (tf.TensorSpec([None], tf.string, name=name) for name in ("text", "image_bytes"))
VISITS = [tf.TensorSpec([None, None], tf.float32, name=name) for name in ("time", "bili")]


@pytest.mark.parametrize(
    ("function", "specs", "message"),
    [
        (lambda x: {"y": tf.reduce_sum(x)}, [X], r"y: shape \(\) on a batch of 1; the first dim"),
        (
            lambda x: {"y": tf.RaggedTensor.from_row_lengths(x, [tf.size(x)])},
            *([X], "output y: not a dense tensor; it cannot be fetched"),
        ),
        (lambda x: {"y": tf.concat([x, x], 0)}, [X], r"output y: shape \(2,\) on a batch of 1"),
        (lambda x: {"y": tf.ensure_shape(x, [1])}, [X], "fails on a batch of 3: INVALID_ARGUMENT"),
        (first_word, [TEXT], "serving_default fails on an empty text: INVALID_ARGUMENT: "),
        (share_missing, VISITS, "row 0 of a batch of 3 changes when it is sent alone"),
        (noisy, [X], "output y: not what Python answers on a batch of 1$"),
        (decoded, [TEXT], r"^op DecodeJxl: TensorFlow Serving 2\.20 does not have it$"),
        (careless, [IMAGES], "takes a broken image; expected an error that has "),
    ],
)
def test_what_cannot_be_served_is_one_finding(tmp_path, function, specs, message):
    (finding,) = check_version(save(tmp_path / "1", function, *specs))
    assert re.search(message, finding)


def test_weights_that_are_not_finite_are_refused(tmp_path, rng):
    values = rng.normal(size=(5, 7)).astype("float32")
    values[1, 2:4] = np.inf, np.nan
    wrong, large = tf.Variable(values), rng.normal(size=(37, 53)).astype("float32")
    large[3, 5] = np.inf

    def add(x):
        return {"y": x + wrong[0, 0] + tf.constant(large)[0, 0]}

    stored, constant = check_version(save(tmp_path / "1", add, wrong=wrong))
    assert stored == "weights not finite: wrong has 2 of 35 values"
    assert constant.startswith("weights not finite: constant ")


def test_what_keras_exports_is_taken(tmp_path):
    text = keras.Input((None,), dtype="int32")
    model = keras.Model(text, keras.layers.GRU(29)(keras.layers.Embedding(53, 31)(text)))
    signature = [keras.InputSpec(shape=(None, None), dtype="int32", name="ids")]
    model.export(str(tmp_path / "1"), input_signature=signature, verbose=False)
    assert check_version(tmp_path / "1") == []
