"""The local server with ONNX exports: the answers of the SavedModel, without TensorFlow."""

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from serving.client import Translator
from serving.client.local import LocalTranslator
from serving.export.readers import ExportedPredictor, ExportedReader
from serving.export.version import export
from serving.savedmodel.status import Code, StatusError
from serving.server.onnx_model import OnnxModel
from serving.server.versions import load
from tests.attack.conftest import tensor_request
from tests.serving.conftest import add_version, error_of, free_port, serving
from tests.serving.test_versions import served, states
from training.runs.run import load_run
from training.sources.image import digits

RUN = Path(__file__).parents[1] / "fixtures" / "old_run" / "run"
SETTINGS = {"beam_width": 3, "num_results": 2, "max_source_length": 9, "length_penalty": 0.7}
GRAPHS, SIDES = ("encoder", "step", "translator"), ("source", "target")
TEXTS = ["She is eating a green apple.", "", "He sleeps.", "zzz ★", "a\x00b", "the " * 40]


@pytest.fixture(scope="module")
def run():
    return load_run(RUN)


@pytest.fixture(scope="module")
def models(run, saved, tmp_path_factory):
    """A folder of base paths: `onnx`, and a SavedModel beside it."""
    root = tmp_path_factory.mktemp("formats")
    export([run], root / "onnx", form="onnx", **SETTINGS)
    add_version(saved / "upper", root / "savedmodel", 1)
    return root


@pytest.fixture(scope="module")
def server(models):
    config = models / "models.config"
    config.write_text(
        "model_config_list {"
        + "".join(
            f'config {{ name: "{form}" base_path: "{models / form}" model_platform: "tensorflow" }}'
            for form in ("onnx", "savedmodel")
        )
        + "}"
    )
    with serving(f"--model_config_file={config}", f"--rest_api_port={free_port()}") as server:
        yield server


def test_clients_get_the_answers_of_the_local_translator(server, models):
    local = LocalTranslator(models / "onnx")
    with Translator(f"localhost:{server.port}", "onnx") as translator:
        for name in ("translate", "nbest", "align"):
            assert getattr(translator, name)(TEXTS) == getattr(local, name)(TEXTS)
        received, wanted = translator.score(TEXTS, TEXTS[::-1]), local.score(TEXTS, TEXTS[::-1])
        assert [each.tokens for each in received] == [each.tokens for each in wanted]
        for each, other in zip(received, wanted, strict=True):
            np.testing.assert_allclose(each.log_probs, other.log_probs, atol=1e-5)


def check_same(received, expected):
    """Compare arrays with the SavedModel's tensors, by output."""
    assert set(received) == set(expected)
    for alias, array in received.items():
        wanted = expected[alias].numpy()
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(array, wanted, atol=1e-4)
        else:
            assert array.tolist() == wanted.tolist()


def test_errors_are_those_of_the_saved_model(server, stubs):
    client = stubs(f"localhost:{server.port}")
    bad = [
        {"dtype": 1, "dims": [1], "float_val": [1.0]},
        {"dims": [1, 1], "string_val": [b"a"]},
        {"dims": [2], "string_val": []},
        {"dims": [1], "string_val": [b"a"], "signature": "none"},
    ]
    for each in bad:
        ours, theirs = (
            error_of(client.prediction.Predict, tensor_request(model, **each))
            for model in ("onnx", "savedmodel")
        )
        assert ours == theirs


def test_rest_answers_and_tells_the_signatures(server):
    url = f"http://127.0.0.1:{server.rest_port}/v1/models/onnx"
    body = json.dumps({"signature_name": "translate", "instances": TEXTS[:1]}).encode()
    with urllib.request.urlopen(f"{url}:predict", body, timeout=60) as answer:
        (received,) = json.load(answer)["predictions"]
    assert set(received) == {
        *("translation", "score", "truncated", "unknown"),
        *("words", "word_probabilities"),
    }
    with urllib.request.urlopen(f"{url}/metadata", timeout=60) as answer:
        signatures = json.load(answer)["metadata"]["signature_def"]["signature_def"]
    assert set(signatures) >= {"serving_default", "translate", "nbest", "align", "score"}
    assert signatures["translate"]["inputs"]["text"]["dtype"] == "DT_STRING"


def test_a_batch_may_be_empty(models):
    model = OnnxModel(models / "onnx" / "1")
    empty = {"text": np.zeros(0, object)}
    shapes = {alias: x.shape for alias, x in model.run("nbest", empty, (), 60).items()}
    assert shapes == {"translations": (0, 2), "scores": (0, 2)}
    model.close()


def test_a_run_is_stopped_at_its_deadline_and_with_its_model(models):
    model = OnnxModel(models / "onnx" / "1")
    many = {"text": np.array([b"she is eating " * 3] * 3000, object)}
    with pytest.raises(StatusError) as caught:
        model.run("translate", many, (), 0.001)
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    model.stop()
    with pytest.raises(StatusError) as caught:
        model.run("translate", many, (), 60)
    assert caught.value.code == Code.CANCELLED


ALONE = """
import psutil, sys
from serving.client import Translator
from serving.server.flags import build_parser
from serving.server.model_server import ModelServer
server = ModelServer(build_parser().parse_args(
    ["--port=0", "--model_name=m", "--model_base_path=" + sys.argv[1]]))
server.start()
with Translator(f"localhost:{server.port}", "m") as translator:
    assert translator.translate(["He sleeps."])[0].text
    assert translator.metadata().version == 1
server.close()
assert not {"tensorflow", "keras"} & set(sys.modules)
print(psutil.Process().memory_info().rss // 2**20)
"""


def test_a_server_of_onnx_alone_imports_no_tensorflow(models):
    command = [sys.executable, "-c", ALONE, str(models / "onnx")]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert printed.returncode == 0, printed.stderr
    assert int(printed.stdout) < 250


def loaded(path):
    """A version as the server loads it: each signature is run once."""
    return load(path, 60)


def damaged(version_dir, name, how):
    """Spoil a file of a version."""
    path = version_dir / name
    content = path.read_bytes()
    if how in ("a folder", "absent"):
        path.unlink()
        if how == "a folder":
            path.mkdir()
        return
    path.write_bytes(
        {
            "a byte short": content[:-1],
            "two bytes short": content[:-2],  # the last is a line end
            "half": content[: len(content) // 2],
            "empty": b"",
            "zeros": bytes(len(content)),
            "a list": b"[]",
            "nested": b"[" * 100_000,
        }[how]
    )


DAMAGE = [
    *(("weights.bin", how) for how in ("a byte short", "empty", "absent")),
    *(("manifest.json", how) for how in ("two bytes short", "a list", "nested")),
    *((f"{graph}.onnx", "a byte short") for graph in GRAPHS),
    *((f"{side}.json", "half") for side in SIDES),
    ("translator.onnx", "zeros"),
    ("source.json", "a folder"),
]


@pytest.fixture(scope="module")
def watched(models, tmp_path_factory):
    """A server of a base path with a good version 1, and the path."""
    base = tmp_path_factory.mktemp("damage") / "onnx"
    add_version(models / "onnx" / "1", base, 1)
    flags = ["--model_name=onnx", f"--model_base_path={base}", "--file_system_poll_wait_seconds=0"]
    with serving(*flags) as server:
        yield server, base


@pytest.mark.parametrize(("name", "how"), DAMAGE)
def test_a_damaged_version_never_replaces_a_good_one(watched, models, stubs, name, how):
    server, base = watched
    number = 1 + max(int(path.name) for path in base.iterdir())
    copy = shutil.copytree(models / "onnx" / "1", base / "writing")
    damaged(copy, name, how)
    version = copy.rename(base / str(number))
    for _ in range(2):
        server.models.scan()
    client = stubs(f"localhost:{server.port}")
    assert states(client, "onnx") == {1: "AVAILABLE", number: "END"}
    assert served(client, model="onnx", text="He sleeps.") == 1
    shutil.rmtree(version)
    server.models.scan()


def test_a_loaded_version_needs_its_files_no_more(models, tmp_path):
    version = shutil.copytree(models / "onnx" / "1", tmp_path / "1")
    model = loaded(version)
    shutil.rmtree(version)
    texts = {"text": np.array([b"He sleeps."]), "translation": np.array([b"Il dort."])}
    for name, signature in model.signatures.items():
        inputs = {alias: texts[alias] for alias in signature.inputs}
        assert model.run(name, inputs, (), 60)
    model.close()


@pytest.mark.parametrize("text", ["the " * 225_000, "★" * 300_000])
def test_a_text_of_a_megabyte_is_answered_within_a_requests_time(models, text):
    model = loaded(models / "onnx" / "1")
    for name, signature in model.signatures.items():
        inputs = {a: np.array([text.encode()], object) for a in signature.inputs}
        model.run(name, inputs, (), 60)  # a limit of time
    model.close()


def test_images_are_read_as_by_the_saved_model(image_run, tmp_path):
    settings = {"beam_width": 3, "num_results": 2}
    model = loaded(export([image_run], tmp_path / "digits", form="onnx", **settings))
    images = [example.image for example in digits.make(5, seed=9)]
    module = ExportedReader([image_run], **settings)
    for signature in ("read", "nbest", "regions"):
        wanted = getattr(module, signature)(image_bytes=tf.constant(images))
        check_same(model.run(signature, {"image_bytes": np.array(images, object)}, (), 60), wanted)
    with pytest.raises(StatusError, match=r"image_bytes\[1\] is neither") as caught:
        model.run(
            "serving_default", {"image_bytes": np.array([images[0], b"no image"], object)}, (), 60
        )
    assert caught.value.code == Code.INVALID_ARGUMENT
    model.close()


def test_outcomes_are_those_of_the_saved_model(event_run, tmp_path, rng):
    model = loaded(export([event_run], tmp_path / "visits", form="onnx"))
    columns = {
        name: rng.normal(2, 3, (7, 11)).astype("float32") for name in event_run.source.inputs()
    }
    columns["time"].sort(axis=1)
    for name in columns:
        columns[name][3, 5:] = columns[name][4] = np.nan  # the ends of histories
        if name != "time":
            columns[name][rng.random((7, 11)) < 0.3] = np.nan
    tensors = {name: tf.constant(column) for name, column in columns.items()}
    wanted = ExportedPredictor([event_run]).predict(**tensors)
    received = model.run("predict", columns, (), 60)
    assert set(received) == set(wanted)
    for alias, array in received.items():
        np.testing.assert_allclose(array, wanted[alias].numpy(), atol=1e-5)
    columns["time"][0] = columns["time"][0, ::-1]
    with pytest.raises(StatusError, match="times of a history go back"):
        model.run("predict", columns, (), 60)
    model.close()
