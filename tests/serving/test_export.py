import json
import math
import os
import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from keras_attention import exporting
from serving.api._export_files import SAVED_MANIFEST
from serving.check._graph import check_graph, read_meta_graph
from serving.check._version import check_version as check
from serving.export import __main__ as script
from serving.export import _version as writer
from serving.export._modules import saved_module, traced
from serving.export._version import export
from serving.loaded._status import StatusError
from serving.loaded.saved_model import ModelSession
from tests.serving.conftest import TEXT_RUN
from tests.serving.onnx_models import TARGET, random_ids, random_model
from tests.serving.portable.write.test_onnx_graphs import MODELS
from tests.training.conftest import tiny_config, untrained
from training.command.errors import UserError
from training.command.files import move
from training.config._keys import ATTENTIONS
from training.data.tokens.store import START_ID
from training.decode.search import encode, score_targets
from training.decode.settings import SearchSettings
from training.decode.steps import PlainStep, constant_steps
from training.decode.texts import make_translator

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


@pytest.mark.slow
def test_the_export_passes_the_gate(version):
    assert check(version) == []


def test_versions_are_numbered_and_nothing_half_written_is_left(tmp_path):
    output = tmp_path / "model"
    (output / "3").mkdir(parents=True)
    words = ["--run", TEXT_RUN, "--run", TEXT_RUN, "--output", output, "--format", "onnx"]
    script.main([*map(str, words), "--beam-width", "1"])
    assert sorted(path.name for path in output.iterdir()) == ["3", "4"]
    manifest = json.loads((output / "4" / "manifest.json").read_text())
    assert [run["config"]["data"] for run in manifest["runs"]] == ["tsv:pairs.tsv"] * 2
    settings = {"beam_width": 1, "num_results": 1, "max_source_length": 256}  # one without a beam
    assert settings.items() <= manifest["settings"].items()


def bytes_of_weights(version):
    reader = tf.train.load_checkpoint(version / "variables" / "variables")
    dtypes, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    sizes = {name: dtype.size for name, dtype in dtypes.items() if dtype != tf.string}
    return sum(math.prod(shapes[name]) * size for name, size in sizes.items())


@pytest.mark.slow
def test_products_in_bfloat16_keep_the_translations(version, run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("training.runs.run.load_ensemble", lambda paths: [run])
    monkeypatch.setattr(writer, "_COMPARED", 101)
    arguments = ["--run", str(run.path), "--beam-width", "3", "--nbest", "2"]
    script.main([*arguments, "--precision", "bfloat16", "--output", str(tmp_path / "quick")])
    quick = tmp_path / "quick" / "1"
    assert check_graph(read_meta_graph(quick)) == []
    told = json.loads((quick / SAVED_MANIFEST).read_text())["agreement"]
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


def scored(model):
    """The function to save that forces targets: its step, by a mechanism, and what it keeps."""
    steps = constant_steps([model], 3, "float32")

    def score(source, target):
        encoded = encode(steps or [PlainStep(model, 3)], source)
        return {"log_probs": score_targets([model], encoded, target, steps)}

    ids = dict.fromkeys(("source", "target"), ((None, None), "int32"))
    constants = [weight for step in steps or () for weight in step.taken]
    with exporting():
        return traced(score, ids), saved_module([model], without=constants)


@pytest.mark.slow
def test_a_saved_model_of_each_mechanism_answers_as_the_model_that_reads_the_whole_target(tmp_path):
    settings = {
        each.partition("attention=")[2].split(" ")[0] or "additive": each.split()
        for each in MODELS.values()
    }
    assert settings.keys() == {*ATTENTIONS}
    models = {name: random_model(*each)[1] for name, each in settings.items()}
    module, saved = tf.Module(), list(map(scored, models.values()))
    module.parts = [part for _, part in saved]
    signatures = {f"score_{number}": function for number, (function, _) in enumerate(saved)}
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=signatures)
    source = random_ids(5, 7).astype("int32")
    target = np.random.default_rng(1).integers(2, TARGET, (5, 6)).astype("int32")
    before = np.insert(target, 0, START_ID, axis=1)[:, :-1]
    with ModelSession(tmp_path / "1") as session:
        for signature, (name, model) in zip(signatures, models.items(), strict=True):
            found = session.run(signature, {"source": source, "target": target})["log_probs"]
            logits = np.array(model({"source": source, "target": before}), "float64")
            wanted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            wanted = np.take_along_axis(wanted, target[..., None], -1)[..., 0]
            np.testing.assert_allclose(found, wanted, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_an_ensemble_without_attention_has_no_alignments(tmp_path):
    silent = untrained(tiny_config("attention=none"), tmp_path / "run")
    version = export([silent, silent], tmp_path / "model", beam_width=2, num_results=2)
    assert check(version) == []
    with ModelSession(version) as session:
        assert "nbest" in session.signatures
        assert "align" not in session.signatures
        found = session.run("translate", {"text": TEXTS})["translation"]
    expected = make_translator([silent], SearchSettings(beam_width=2))(TEXTS)
    expected[1] = ""  # two of one run agree
    assert [text.decode() for text in found] == expected


@pytest.mark.slow
def test_scores_of_translations_that_are_too_long_say_so(version, run):
    with ModelSession(version) as session:

        def score(texts, translations):
            given = {"text": texts, "translation": translations}
            return session.run("score", {name: np.array(x, object) for name, x in given.items()})

        found = score(["a", "a", "apple " * 99], ["b", "pomme " * 999, "b"])
        with pytest.raises(StatusError, match="as many translations as texts"):
            score(["a", "b"], ["b"])
    assert found["truncated"].tolist() == [False, True, True]
    factor, more = run.config.bound
    assert found["tokens"].shape[1] == factor * LENGTH + more


def test_an_export_removes_what_killed_exports_left(tmp_path):
    """A process's number says nothing: in another container it is another's. Links stay unread."""
    output, outside = tmp_path / "models", tmp_path / "outside"
    outside.mkdir()
    for name in ("writing-1", f"writing-{os.getpid()}", "writing-it"):
        (output / name).mkdir(parents=True)
        (output / name / "saved_model.pb").touch()
    (output / "writing-7").symlink_to(outside)
    with writer._aside(output) as first, writer._aside(output) as second:
        folders = {path.parent.name for path in (first, second)}
        assert {path.name for path in output.iterdir()} >= {*folders, "writing-it"}
        assert not [*output.glob("writing-1"), *output.glob(f"writing-{os.getpid()}")]
    assert "writing-it" in {path.name for path in output.iterdir()} <= {"writing-it", "writing-7"}
    assert not any(outside.iterdir())


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


def test_exports_do_not_remove_each_other(tmp_path):
    def one(name):
        for _ in range(15):
            with writer._aside(tmp_path) as aside:
                (aside / name).write_bytes(b"abc")
                exported.append((writer._number(aside, "manifest.json", {}), name))

    exported = []
    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(one, name) for name in "abcd"]:
            future.result(60)
    assert sorted(int(version.name) for version, _ in exported) == [*range(1, 61)]
    assert len(list(tmp_path.iterdir())) == 60
    for version, name in exported:
        assert {path.name for path in version.iterdir()} == {name, "manifest.json"}


def test_an_export_is_locked_until_it_has_its_name(tmp_path, monkeypatch):
    def late(aside, path):
        with writer._aside(tmp_path):  # which removes what killed exports left
            return move(aside, path)

    monkeypatch.setattr(writer, "move", late)
    with writer._aside(tmp_path) as aside:
        (aside / "weights.bin").touch()
        version = writer._number(aside, "manifest.json", {})
    assert sorted(path.name for path in version.iterdir()) == ["manifest.json", "weights.bin"]


@pytest.mark.parametrize(
    ("there", "number"), [("007", 8), (str(2**63), 1), ("-5", 1), ("9", 10), (str(2**63 - 1), 0)]
)
def test_the_next_version_follows_those_that_servers_find(tmp_path, there, number):
    (tmp_path / there).mkdir()
    if number:
        with writer._aside(tmp_path) as aside:
            assert writer._number(aside, "manifest.json", {}) == tmp_path / str(number)
        return
    largest = "has version 9223372036854775807, the largest that servers"
    with pytest.raises(UserError, match=largest), writer._aside(tmp_path) as aside:
        writer._number(aside, "manifest.json", {})
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_not_exported(run, tmp_path, monkeypatch, value):
    monkeypatch.setattr("training.runs.run.load_ensemble", lambda paths: [run])
    weight = run.model.get_layer("decoder").cell.kernel
    before = weight.numpy()
    words = ["--run", str(run.path), "--output", str(tmp_path / "models" / "x")]
    try:
        weight.assign(np.where(np.arange(weight.shape[1]) == 3, value, before))
        with pytest.raises(UserError, match=rf"{len(before)} values of .*kernel are not"):
            script.main(words)
    finally:
        weight.assign(before)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_nothing_is_left(event_run, tmp_path):
    (tmp_path / "models").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises((UserError, OSError)) as caught:
            export([event_run], tmp_path / "models" / "x")
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
