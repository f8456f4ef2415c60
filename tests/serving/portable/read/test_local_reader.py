"""A reader in this process against the run and the SavedModel that it was exported from."""

import json

import numpy as np
import pytest
import tensorflow as tf

from serving import read
from serving.api.errors import InvalidRequestError
from serving.check import onnx
from serving.check.onnx import check_folder
from serving.export.modules import ExportedReader
from serving.export.version import export
from serving.portable.read import LocalReader, LocalTranslator
from training.decode.settings import SearchSettings
from training.sources.image import digits


@pytest.fixture(scope="module")
def version(onnx_reader):
    return onnx_reader


def pictures(count):
    return [example.image for example in digits.make(count, seed=9)]


def test_readings_and_regions_are_those_of_the_saved_model(image_run, version):
    images = pictures(7)
    module = ExportedReader([image_run], SearchSettings(beam_width=3, num_results=5))
    wanted = {k: x.numpy() for k, x in module.regions(image_bytes=tf.constant(images)).items()}
    reader = LocalReader(version.parent, batch_size=3, threads=2)
    for number, (plain, found) in enumerate(
        zip(reader.read(images), reader.regions(images), strict=True)
    ):
        assert plain.text == found.text == wanted["text"][number].decode()
        np.testing.assert_allclose([plain.score, found.score], wanted["score"][number], atol=1e-4)
        tokens = [token.decode() for token in wanted["tokens"][number]]
        count = len(found.tokens)
        assert [*found.tokens] == tokens[:count]
        assert not any(tokens[count:])
        shown = np.array(found.tokens, bool)[:, None, None]  # a model of one epoch may say START
        weights = wanted["attention_weights"][number, :count]
        mine = np.reshape(found.attention_weights, weights.shape)
        np.testing.assert_allclose(mine * shown, weights, atol=1e-4)
        sure = wanted["token_probabilities"][number, :count]
        assert plain.tokens == found.tokens
        assert plain.token_probabilities == found.token_probabilities
        np.testing.assert_allclose(found.token_probabilities, sure, atol=1e-4)
    assert wanted["tokens"].any()
    several = module.nbest(image_bytes=tf.constant(images))
    for number, found in enumerate(LocalReader(version, num_results=3).nbest(images)):
        assert [one.text for one in found] == [
            text.decode() for text in several["texts"][number].numpy()
        ]
    assert reader.read([]) == reader.regions([]) == []


def test_a_broken_image_is_named_and_takes_no_other_down(version, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    images, reader = [*pictures(2), broken], LocalReader(version)
    with pytest.raises(InvalidRequestError, match=r"image 3 \(.*broken.png\) is neither PNG nor"):
        reader.read(images)
    *found, error = reader.read(images, keep_errors=True)
    assert found == reader.read(images[:2])
    assert isinstance(error, InvalidRequestError)
    with pytest.raises(TypeError, match="list of images"):
        reader.read(images[0])
    with pytest.raises(ValueError, match=r"a model to translate with\. Received: to read"):
        LocalTranslator(version)


def test_the_command_reads_without_a_server(version, tmp_path, capsys):
    image, drawn = tmp_path / "image.png", tmp_path / "drawn.png"
    image.write_bytes(pictures(1)[0])
    words = [str(image), "--local", str(version), "--json", "--regions", "--png", str(drawn)]
    assert read.main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    (wanted,) = LocalReader(version).read([image])
    assert (answer["text"], drawn.is_file()) == (wanted.text, True)


def test_the_check_finds_nothing_in_eight_bits(image_run, tmp_path):
    version = export([image_run], tmp_path / "a", form="onnx", beam_width=3, weights="int8")
    assert json.loads((version / "manifest.json").read_text())["agreement"]["texts"] > 0
    # In eight bits, a model of one epoch reads noise otherwise more often than not.
    assert check_folder(version) == []


def test_the_check_compares_with_the_run(image_run, version, monkeypatch):
    assert check_folder(version, image_run.path) == []
    monkeypatch.setattr(onnx, "_said_by_run", lambda *arguments: ["?"] * 6)
    assert check_folder(version, image_run.path) == [
        f"6 of 6 answers are not those of the run {image_run.path}"
    ]
