import json
import math

import numpy as np
import pytest
import tensorflow as tf

from serving import export as script
from serving.check import check
from serving.export import export
from serving.session import ModelSession
from tests.training.conftest import tiny_config, tiny_run  # noqa: F401 - a fixture
from training.errors import UserError
from training.inference import make_translator
from training.run import load_run
from training.train import train

TEXTS = ["She is eating a green apple.", "", "He sleeps.", "zzz ★"]
LENGTH = 9  # tokens that the export reads


@pytest.fixture(scope="module")
def version(tiny_run, tmp_path_factory):  # noqa: F811
    output = tmp_path_factory.mktemp("models") / "tiny"
    settings = {"beam_width": 3, "num_results": 2, "max_source_length": LENGTH}
    return export([tiny_run], output, **settings)


@pytest.fixture(scope="module")
def call(version):
    """Call a signature through the C++ loader that TensorFlow Serving uses."""
    with ModelSession(version) as session:

        def run(signature, texts):
            proto = tf.make_tensor_proto(texts, tf.string, [len(texts)])
            return session.run(session.signatures[signature], {"text": proto})

        yield run


def test_the_export_passes_the_gate(version):
    assert check(version) == []


def test_translations_are_those_of_the_run(call, tiny_run):  # noqa: F811
    found = call("translate", TEXTS)
    expected = make_translator([tiny_run], beam_width=3, max_source_length=LENGTH)(TEXTS)
    expected[1] = ""
    assert [text.decode() for text in found["translation"]] == expected
    assert found["score"].dtype == np.float32
    assert found["score"][0] < 0
    assert found["score"][1] == 0
    default = call("serving_default", TEXTS)
    assert default["translation"].tolist() == found["translation"].tolist()


def test_nbest_begins_with_the_translation_and_is_in_order(call):
    best, several = call("translate", TEXTS), call("nbest", TEXTS)
    assert several["translations"].shape == several["scores"].shape == (len(TEXTS), 2)
    assert several["translations"][:, 0].tolist() == best["translation"].tolist()
    np.testing.assert_allclose(several["scores"][:, 0], best["score"], rtol=1e-5)
    assert (np.diff(several["scores"], axis=1) <= 0).all()


def test_alignments_have_a_weight_for_each_pair_of_tokens(call):
    found = call("align", TEXTS)
    rows, columns = found["target_tokens"].shape[1], found["source_tokens"].shape[1]
    assert found["attention_weights"].shape == (len(TEXTS), rows, columns)
    for text, target, source, weights in zip(
        TEXTS,
        found["target_tokens"],
        found["source_tokens"],
        found["attention_weights"],
        strict=True,
    ):
        said, read = target != b"", source != b""
        if not text:
            assert not said.any()
        np.testing.assert_allclose(weights[said].sum(-1), 1, atol=1e-5)
        assert not weights[~said].any()
        assert not weights[:, ~read].any()


def test_a_text_that_is_too_long_is_cut_and_says_so_and_leaves_the_others_alone(call):
    long = "apple " * 10_000
    alone = call("translate", TEXTS)
    together = call("translate", [*TEXTS, long])
    assert together["truncated"].tolist() == [False] * len(TEXTS) + [True]
    assert together["translation"][:-1].tolist() == alone["translation"].tolist()
    np.testing.assert_allclose(together["score"][:-1], alone["score"], atol=1e-5)
    cut = call("translate", [" ".join(["apple"] * LENGTH)])
    assert together["translation"][-1] == cut["translation"][0]
    assert not cut["truncated"][0]


@pytest.mark.parametrize(
    "texts", [[], [b""], [b"\xff\xfe"], [b"a\x00b"], [b"\xf0\x9f"], ["\u200b \t\n"]]
)
def test_no_text_is_refused(call, texts):
    for signature in ("translate", "nbest", "align"):
        for output in call(signature, texts).values():
            assert len(output) == len(texts)


def test_versions_are_numbered_and_nothing_half_written_is_left(tiny_run, tmp_path):  # noqa: F811
    output = tmp_path / "model"
    (output / "3").mkdir(parents=True)
    settings = {"beam_width": 1, "num_results": 1, "max_source_length": LENGTH}
    assert export([tiny_run, tiny_run], output, **settings).name == "4"
    assert sorted(path.name for path in output.iterdir()) == ["3", "4"]
    manifest = json.loads((output / "4" / "assets.extra" / "manifest.json").read_text())
    assert [run["config"]["data"] for run in manifest["runs"]] == ["phrasebook-en-fr"] * 2
    assert manifest["settings"] == settings
    assert check(output / "4") == []


def bytes_of_weights(version):
    reader = tf.train.load_checkpoint(version / "variables" / "variables")
    dtypes = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    return sum(
        math.prod(shape) * dtypes[name].size
        for name, shape in shapes.items()
        if dtypes[name] != tf.string
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_halves_the_size_and_keeps_the_translations(
    tiny_run,  # noqa: F811
    tmp_path,
    monkeypatch,
    capsys,
    dtype,
):
    monkeypatch.setattr(script, "load_ensemble", lambda paths: [tiny_run])
    arguments = ["--run", "run", "--beam-width", "3", "--num-results", "2", "--weights", dtype]
    script.main([*arguments, "--output", str(tmp_path / "half")])
    half = tmp_path / "half" / "1"
    assert bytes_of_weights(half) == 2 * tiny_run.model.count_params()
    assert check(half) == []
    told = json.loads((half / script.MANIFEST).read_text())["agreement"]
    assert told["texts"] == 500
    assert f"{told['same']} of 500" in capsys.readouterr().out
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert told["same"] > 250  # of a model that has hardly learnt anything, and is rarely sure
    assert 0 < told["score_difference"] < 30 * rounding
    weights = [weight.numpy().copy() for weight in tiny_run.model.weights]
    try:
        # Independent of the export: the run itself, with weights that NumPy and TensorFlow rounded.
        for weight in tiny_run.model.weights:
            weight.assign(tf.cast(tf.cast(weight.value, dtype), weight.dtype))
        expected = make_translator([tiny_run], beam_width=3)(TEXTS)
    finally:
        for weight, value in zip(tiny_run.model.weights, weights, strict=True):
            weight.assign(value)
    with ModelSession(half) as session:
        proto = tf.make_tensor_proto(TEXTS, tf.string, [len(TEXTS)])
        found = session.run(session.signatures["translate"], {"text": proto})
    expected[1] = ""
    assert [text.decode() for text in found["translation"]] == expected


def test_products_in_bfloat16_keep_the_translations(
    version,
    tiny_run,  # noqa: F811
    tmp_path,
    monkeypatch,
    capsys,
):
    monkeypatch.setattr(script, "load_ensemble", lambda paths: [tiny_run])
    arguments = ["--run", "run", "--beam-width", "3", "--num-results", "2"]
    script.main([*arguments, "--precision", "bfloat16", "--output", str(tmp_path / "quick")])
    quick = tmp_path / "quick" / "1"
    assert check(quick) == []
    told = json.loads((quick / script.MANIFEST).read_text())["agreement"]
    assert f"{told['same']} of 500" in capsys.readouterr().out
    assert told["same"] > 250  # of a model that has hardly learnt anything, and is rarely sure
    assert 0 < told["score_difference"] < 0.1
    # The kernels are in the graph, once for all signatures, and not among the variables.
    kernel = tiny_run.model.get_layer("decoder").attention.query_kernel.value
    for folder, dtype in ((quick, tf.bfloat16), (version, tf.float32)):
        assert bytes_of_weights(folder) < 4 * tiny_run.model.count_params()
        graph = (folder / "saved_model.pb").read_bytes()
        assert graph.count(tf.cast(kernel, dtype).numpy().tobytes()) == 1
    with ModelSession(quick) as session:
        proto = tf.make_tensor_proto(TEXTS, tf.string, [len(TEXTS)])
        found = session.run(session.signatures["translate"], {"text": proto})
    expected = make_translator([tiny_run], beam_width=3, precision="bfloat16")(TEXTS)
    expected[1] = ""
    assert [text.decode() for text in found["translation"]] == expected


def test_an_ensemble_in_bfloat16_is_one_clear_line(tiny_run):  # noqa: F811
    arguments = ["--run", "a", "--run", "b", "--output", "x", "--precision", "bfloat16"]
    with pytest.raises(UserError, match=r"--precision bfloat16 expected one --run"):
        script.main(arguments)


def test_a_model_without_attention_has_no_alignments(tmp_path):
    train(tiny_config("attention=none", "epochs=1", "train_limit=100"), tmp_path / "run")
    run = load_run(tmp_path / "run")
    version = export([run], tmp_path / "model", beam_width=2, num_results=2)
    with ModelSession(version) as session:
        assert set(session.signatures) >= {"serving_default", "translate", "nbest"}
        assert "align" not in session.signatures


def test_more_results_than_beams_is_one_clear_line(tiny_run):  # noqa: F811
    arguments = ["--run", str(tiny_run.path), "--output", "x", "--beam-width", "2"]
    with pytest.raises(UserError, match="--num-results expected at most --beam-width, 2"):
        script.main(arguments)


def test_a_missing_run_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match="is not a run"):
        script.main(["--run", str(tmp_path), "--output", str(tmp_path / "x")])
