"""A reader in this process against the run and the SavedModel that it was exported from."""

import json

import pytest

from serving.api._errors import InvalidRequestError
from serving.check import _onnx as onnx
from serving.check._onnx import check_folder
from serving.client import _read as read
from serving.export._version import export
from serving.portable.read import LocalReader, LocalTranslator
from tests.serving.test_readers import pictures


def test_a_broken_image_is_named_and_takes_no_other_down(onnx_reader, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    images, reader = [*pictures(2), broken], LocalReader(onnx_reader)
    with pytest.raises(InvalidRequestError, match=r"image 3 \(.*broken.png\) is neither PNG nor"):
        reader.read(images)
    *found, error = reader.read(images, keep_errors=True)
    assert found == reader.read(images[:2])
    alone = LocalReader(onnx_reader.parent, batch_size=1, threads=2).read(images[:2])
    assert [each.text for each in found] == [each.text for each in alone]
    (alone,) = reader.read([broken], keep_errors=True)
    assert isinstance(alone, InvalidRequestError)
    assert reader.read([]) == reader.regions([]) == []
    assert isinstance(error, InvalidRequestError)
    with pytest.raises(TypeError, match="list of images"):
        reader.read(images[0])
    with pytest.raises(
        ValueError, match=r"is a model to read, and LocalTranslator needs one to translate"
    ):
        LocalTranslator(onnx_reader)


def test_the_command_reads_without_a_server(onnx_reader, tmp_path, capsys):
    image, drawn = tmp_path / "image.png", tmp_path / "drawn.png"
    image.write_bytes(pictures(1)[0])
    words = [str(image), "--local", str(onnx_reader), "--json", "--regions", "--png", str(drawn)]
    assert read.main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    (wanted,) = LocalReader(onnx_reader).read([image])
    assert (answer["text"], drawn.is_file()) == (wanted.text, True)


def test_the_check_finds_nothing_in_eight_bits(image_run, tmp_path):
    version = export([image_run], tmp_path / "a", form="onnx", beam_width=3, weights="int8")
    assert json.loads((version / "manifest.json").read_text())["agreement"]["texts"] > 0
    # In eight bits, a model of one epoch reads noise otherwise more often than not.
    assert check_folder(version) == []


def test_the_check_compares_with_the_run(image_run, onnx_reader, monkeypatch):
    assert check_folder(onnx_reader, image_run.path) == []
    monkeypatch.setattr(onnx, "_said_by_run", lambda *arguments: ["?"] * 6)
    assert check_folder(onnx_reader, image_run.path) == [
        f"6 of 6 answers are not those of the run {image_run.path}"
    ]
