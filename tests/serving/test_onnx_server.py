"""The local server with ONNX exports: the answers of the SavedModel, without TensorFlow."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from serving.client import Alignment, Translator
from serving.loaded._load import load
from serving.loaded._onnx_model import OnnxModel
from serving.loaded._status import Code, StatusError
from serving.portable.read import LocalTranslator
from serving.server._calls import Call
from tests.attack.conftest import tensor_request
from tests.serving.conftest import add_version, error_of, models_config, serving

TEXTS = ["She is eating a green apple.", "", "He sleeps.", "zzz ★", "a\x00b", "the " * 40]


@pytest.fixture(scope="module")
def models(onnx_translator, saved, tmp_path_factory):
    """A folder of base paths: `onnx`, and a SavedModel beside it."""
    root = tmp_path_factory.mktemp("formats")
    add_version(onnx_translator, root / "onnx", 1)
    add_version(saved / "plain", root / "savedmodel", 1)
    return root


@pytest.fixture(scope="module")
def server(models):
    bases = {form: models / form for form in ("onnx", "savedmodel")}
    config = models_config(models / "models.config", bases)
    with serving(f"--model_config_file={config}") as server:
        yield server


def test_clients_get_the_answers_of_the_local_translator(server, models):
    local = LocalTranslator(models / "onnx")
    with Translator(f"localhost:{server.port}", "onnx", batch_size=4) as translator:
        for name in ("translate", "nbest", "align"):
            assert getattr(translator, name)(TEXTS) == getattr(local, name)(TEXTS)
        received, wanted = (each.score(TEXTS, TEXTS[::-1]) for each in (translator, local))
        assert [(x.tokens, x.truncated) for x in received] == [
            (x.tokens, x.truncated) for x in wanted
        ]
        for each, other in zip(received, wanted, strict=True):
            np.testing.assert_allclose(each.log_probs, other.log_probs, atol=1e-5)
            np.testing.assert_allclose(each.score, other.score, atol=1e-5)
        assert translator.score([], []) == []


def test_an_answer_without_tokens_aligns_beside_others(server, monkeypatch):
    silent = Alignment("", ("▁a", "▁b", "▁c"), (), ())
    short = Alignment("d", ("▁e",), ("▁d",), ((1.0,),), ("d",), (0.5,))
    with Translator(f"localhost:{server.port}", "onnx") as translator:
        for answers in ([silent, short], [silent]):
            monkeypatch.setattr(LocalTranslator, "align", lambda *_, answers=answers: answers)
            assert translator.align(["a"] * len(answers)) == answers


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


def test_a_run_is_stopped_at_its_deadline_and_with_its_model(models):
    model = OnnxModel(models / "onnx" / "1")
    many = {"text": np.array([b"she is eating " * 3] * 3000, object)}
    with pytest.raises(StatusError) as caught:
        model.run("translate", many, Call(0.001))
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    model.stop()
    with pytest.raises(StatusError) as caught:
        model.run("translate", many, Call(60))
    assert caught.value.code == Code.CANCELLED


ALONE = """
import os, psutil, sys
from serving.client import Alignment, Translator
from serving.server._settings import build_parser
from serving.server._model_server import ModelServer
os.mkdir(sys.argv[1] + "/99")  # as a copy begins
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


def test_a_server_of_onnx_alone_imports_no_tensorflow(models, tmp_path):
    base = shutil.copytree(models / "onnx", tmp_path / "onnx")
    command = [sys.executable, "-c", ALONE, str(base)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert printed.returncode == 0, printed.stderr
    assert int(printed.stdout) < 250


def test_a_loaded_version_stays_as_it_was_and_needs_its_files_no_more(models, tmp_path):
    version = shutil.copytree(models / "onnx" / "1", tmp_path / "1")
    model = load(version, 60)  # as the server does: each signature is run once
    before = {name: answers(model, name) for name in model.signatures}
    content = (version / "weights.bin").read_bytes()
    with (version / "weights.bin").open("r+b") as file:  # as cp does it
        file.write(content[::-1])
    assert {name: answers(model, name) for name in model.signatures} == before
    with pytest.raises(StatusError, match=r"weights\.bin is not the file that was exported"):
        load(version, 60)
    shutil.rmtree(version)
    assert {name: answers(model, name) for name in model.signatures} == before
    model.close()


def answers(model, name, text="He sleeps."):
    inputs = {alias: np.array([text.encode()], object) for alias in model.signatures[name].inputs}
    outputs = model.run(name, inputs, Call(60))  # a limit of time
    return {alias: array.tolist() for alias, array in outputs.items()}


@pytest.mark.parametrize("text", ["the " * 225_000, "★" * 300_000])
def test_a_text_of_a_megabyte_is_answered_within_a_requests_time(models, text):
    model = load(models / "onnx" / "1", 60)
    for name in model.signatures:
        answers(model, name, text)
    model.close()
