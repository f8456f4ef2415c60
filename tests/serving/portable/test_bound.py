"""An answer ends where its run says, in every execution."""

import base64
import json

import pytest
import tensorflow as tf

from serving.export.version import export
from serving.portable.engine.pack import pack
from serving.portable.read import LocalTranslator
from tests.serving.javascript import NODE, run
from tests.serving.portable.engine.test_translator import TRANSLATE
from tests.training.conftest import tiny_config, untrained
from training.data.store import END_ID
from training.decode.texts import make_translator

TEXTS = ["the dog sleeps", "a", "one two three four five six"]


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    """A run that says the same letter until it has to end."""
    folder = tmp_path_factory.mktemp("bound")
    letters = ("source_tokenizer=letters", "target_tokenizer=letters", "target_bound=3x+7")
    made = untrained(tiny_config(*letters, "tie_embeddings=false"), folder / "run")
    bias = made.model.get_layer("output").bias
    bias.assign(30.0 * tf.one_hot(END_ID + 3, bias.shape[0]))
    return made, folder


def test_every_execution_ends_there(bounded):
    run_, folder = bounded
    wanted = [3 * len(text) + 7 for text in TEXTS]
    assert [len(text) for text in make_translator([run_])(TEXTS)] == wanted
    saved = tf.saved_model.load(str(export([run_], folder / "savedmodel")))
    found = saved.signatures["translate"](text=tf.constant(TEXTS))["translation"].numpy()
    assert [len(text) for text in found] == wanted
    version = export([run_], folder / "onnx", form="onnx")
    local = LocalTranslator(version)
    assert [len(one.text) for one in local.translate(TEXTS)] == wanted
    manifest = json.loads((version / "manifest.json").read_text())
    if NODE:
        given = {"file": base64.b64encode(pack(version, manifest, {})).decode(), "texts": TEXTS}
        found = run(TRANSLATE, given=given)
        assert [len(one["hypotheses"][0]["text"]) for one in found] == wanted
    both = make_translator([run_, run_])(TEXTS[:1])
    assert len(both[0]) == wanted[0]
