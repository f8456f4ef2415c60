import json
import math
import os
import resource

import numpy as np
import pytest
import tensorflow as tf

from serving.check.graph import check_graph, read_meta_graph
from serving.check.version import check_version as check
from serving.export import __main__ as script
from serving.export import version as writer
from serving.export.version import export
from serving.savedmodel.session import ModelSession
from serving.savedmodel.status import StatusError
from tests.serving.conftest import TEXT_RUN
from tests.training.conftest import tiny_config, untrained
from training.command.errors import UserError
from training.command.files import move
from training.data.store import END_ID, START_ID
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest, make_translator

TEXTS = ["She is eating a green apple.", "", "He sleeps.", "zzz ★"]
LENGTH = 9  # tokens that the export reads


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained(tiny_config(), tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def version(run, tmp_path_factory):
    output = tmp_path_factory.mktemp("models") / "tiny"
    settings = {"beam_width": 3, "num_results": 2, "max_source_length": LENGTH}
    return export([run], output, **settings)


@pytest.fixture(scope="module")
def call(version):
    """Call a signature through the C++ loader that TensorFlow Serving uses."""
    with ModelSession(version) as session:

        def ask(signature, texts, **more):
            arrays = {name: np.array(x, object) for name, x in {"text": texts, **more}.items()}
            return session.run(signature, arrays)

        yield ask


def test_the_export_passes_the_gate(version):
    assert check(version) == []


def test_translations_are_those_of_the_run(call, run):
    found = call("translate", TEXTS)
    search = SearchSettings(beam_width=3, max_source_length=LENGTH)
    expected = [best for best, *_ in make_nbest([run], search)(TEXTS)]
    scores = [best.score for best in expected]
    texts = [best.text for best in expected]
    texts[1], scores[1] = "", 0.0
    assert [text.decode() for text in found["translation"]] == texts
    assert found["score"].dtype == np.float32
    np.testing.assert_allclose(found["score"], scores, rtol=1e-4)
    default = call("serving_default", TEXTS)
    assert default["translation"].tolist() == found["translation"].tolist()


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


def test_versions_are_numbered_and_nothing_half_written_is_left(run, tmp_path):
    output = tmp_path / "model"
    (output / "3").mkdir(parents=True)
    settings = {"beam_width": 1, "num_results": 1, "max_source_length": LENGTH}
    assert export([run, run], output, **settings).name == "4"
    assert sorted(path.name for path in output.iterdir()) == ["3", "4"]
    manifest = json.loads((output / "4" / "assets.extra" / "manifest.json").read_text())
    assert [run["config"]["data"] for run in manifest["runs"]] == ["phrasebook-en-fr"] * 2
    assert settings.items() <= manifest["settings"].items()
    assert check_graph(read_meta_graph(output / "4")) == []
    # Two of one run agree.
    expected = make_translator([run], SearchSettings(beam_width=1, max_source_length=LENGTH))(TEXTS)
    expected[1] = ""
    with ModelSession(output / "4") as session:
        found = session.run("translate", {"text": TEXTS})
    assert [text.decode() for text in found["translation"]] == expected


def bytes_of_weights(version):
    reader = tf.train.load_checkpoint(version / "variables" / "variables")
    dtypes = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    return sum(
        math.prod(shape) * dtypes[name].size
        for name, shape in shapes.items()
        if dtypes[name] != tf.string
    )


@pytest.mark.slow
def test_products_in_bfloat16_keep_the_translations(
    version,
    run,
    tmp_path,
    monkeypatch,
    capsys,
):
    monkeypatch.setattr("training.runs.run.load_ensemble", lambda paths: [run])
    monkeypatch.setattr(writer, "COMPARED", 101)
    arguments = ["--run", str(run.path), "--beam-width", "3", "--num-results", "2"]
    script.main([*arguments, "--precision", "bfloat16", "--output", str(tmp_path / "quick")])
    quick = tmp_path / "quick" / "1"
    assert check_graph(read_meta_graph(quick)) == []
    told = json.loads((quick / writer.MANIFEST).read_text())["agreement"]
    assert f"{told['same']} of 101" in capsys.readouterr().out
    assert told["same"] > 50  # of a model that has hardly learnt anything, and is rarely sure
    assert 0 < told["score_difference"] < 0.1
    # The kernels are in the graph, once for all signatures, and not among the variables.
    kernel = run.model.get_layer("decoder").attention.query_kernel.value
    for folder, dtype in ((quick, tf.bfloat16), (version, tf.float32)):
        assert bytes_of_weights(folder) < 4 * run.model.count_params()
        graph = (folder / "saved_model.pb").read_bytes()
        assert graph.count(tf.cast(kernel, dtype).numpy().tobytes()) == 1
    with ModelSession(quick) as session:
        found = session.run("translate", {"text": TEXTS})
        assert "score" not in session.signatures  # a step knows the best tokens alone
    expected = make_translator([run], SearchSettings(beam_width=3, precision="bfloat16"))(TEXTS)
    expected[1] = ""
    assert [text.decode() for text in found["translation"]] == expected


@pytest.mark.slow
def test_a_model_without_attention_has_no_alignments(tmp_path):
    silent = untrained(tiny_config("attention=none"), tmp_path / "run")
    version = export([silent], tmp_path / "model", beam_width=2, num_results=2)
    signatures = read_meta_graph(version).signature_def
    assert set(signatures) >= {"serving_default", "translate", "nbest"}
    assert "align" not in signatures


def test_scores_are_the_models_log_probabilities_of_each_token(call, run):
    translations = ["Elle mange une pomme verte.", "Il", "", "★ pommes"]
    found = call("score", TEXTS, translation=translations)
    source = run.source_tokenizer.tokenize(tf.constant(TEXTS))[:, :LENGTH].to_tensor().numpy()
    ids = run.target_tokenizer.tokenize(tf.constant(translations)).to_list()
    longest = max(map(len, ids)) + 1
    assert found["tokens"].shape == found["log_probs"].shape == (len(TEXTS), longest)
    for row, target in enumerate(ids):
        target = [*target, END_ID]
        # Independent of the export: the model as it is trained, all of the target at once.
        inputs = {"source": source[row : row + 1], "target": np.array([[START_ID, *target[:-1]]])}
        logits = np.float64(run.model(inputs, training=False)[0])
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        expected = log_probs[np.arange(len(target)), target]
        np.testing.assert_allclose(found["log_probs"][row, : len(target)], expected, atol=1e-4)
        assert not found["log_probs"][row, len(target) :].any()
        score = expected.sum() / ((5 + len(target)) / 6)
        np.testing.assert_allclose(found["score"][row], score, rtol=1e-4)
        tokens = [token.decode() for token in found["tokens"][row]]
        assert tokens[len(target) - 1 :] == ["</s>", *[""] * (longest - len(target))]
        assert all(tokens[: len(target)])
    assert not found["truncated"].any()


def test_scores_of_translations_that_are_too_long_say_so(call, run):
    found = call("score", ["a", "a", "apple " * 99], translation=["b", "pomme " * 999, "b"])
    assert found["truncated"].tolist() == [False, True, True]
    factor, more = run.config.bound
    assert found["tokens"].shape[1] == factor * LENGTH + more
    with pytest.raises(StatusError, match="as many translations as texts"):
        call("score", ["a", "b"], translation=["b"])


def test_an_export_removes_what_killed_exports_left(tmp_path):
    """A process's number says nothing: in another container it is another's."""
    for name in ("writing-1", f"writing-{os.getpid()}", "writing-it"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").touch()
    with writer._aside(tmp_path) as first, writer._aside(tmp_path) as second:
        assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name, "writing-it"}
    assert {path.name for path in tmp_path.iterdir()} == {"writing-it"}


def test_exports_that_end_together_have_numbers_of_their_own(tmp_path, monkeypatch):
    def late(aside, path):
        (tmp_path / "1" / "variables").mkdir(parents=True, exist_ok=True)  # by a faster one
        return move(aside, path)

    monkeypatch.setattr(writer, "move", late)
    with writer._aside(tmp_path) as aside:
        (aside / "manifest.json").write_text("{}")
        (aside / "weights.bin").write_bytes(b"abc")
        assert writer._number(aside, "manifest.json", {}) == tmp_path / "2"
    files = json.loads((tmp_path / "2" / "manifest.json").read_text())["files"]
    assert files == {  # of NIST's example
        "weights.bin": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }


def test_an_export_without_a_beam_has_one_result(tmp_path):
    words = ["--run", TEXT_RUN, "--output", tmp_path / "m", "--format", "onnx", "--beam-width", 1]
    script.main(list(map(str, words)))
    manifest = json.loads((tmp_path / "m" / "1" / "manifest.json").read_text())
    assert manifest["settings"]["num_results"] == 1


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_not_exported(run, tmp_path, monkeypatch, value):
    monkeypatch.setattr("training.runs.run.load_ensemble", lambda paths: [run])
    weight = run.model.get_layer("decoder").cell.kernel
    before = weight.numpy()
    words = ["--run", str(run.path), "--output", str(tmp_path / "models" / "x")]
    try:
        weight.assign(np.where(np.arange(weight.shape[1]) == 3, value, before))
        with pytest.raises(
            UserError, match=rf"{len(before)} values of its weight .*kernel are not"
        ):
            script.main(words)
    finally:
        weight.assign(before)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_nothing_is_left(run, tmp_path):
    (tmp_path / "models").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises((UserError, OSError)) as caught:
            export([run], tmp_path / "models" / "x", beam_width=1, num_results=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert "too large" in str(caught.value)
    assert list((tmp_path / "models").iterdir()) == []


def test_an_export_that_fails_leaves_what_was_there(run, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "Exported", lambda *_, **__: 1 / 0)
    (tmp_path / "x" / "1").mkdir(parents=True)
    with pytest.raises(ZeroDivisionError):
        export([run], tmp_path / "x", beam_width=1, num_results=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["x", "1"]
