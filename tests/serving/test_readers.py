"""Images from export to client, in this process and on servers, and what goes wrong on the way."""

import asyncio
import io
import json
import resource

import grpc
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import predict_pb2

from serving.api._errors import InvalidRequestError
from serving.check import _onnx as onnx
from serving.check._onnx import check_folder
from serving.check._version import check_version
from serving.client import _read as read
from serving.client._clients import AsyncReader, Reader
from serving.export._version import export
from serving.portable.read import LocalReader, LocalTranslator
from tests.serving.conftest import error_of, serving
from tests.training.sources.test_image import encode, huge_png
from training.sources.image import _digits as digits


def pictures(count=3):
    return digits.make(count, seed=9).sources


@pytest.fixture(scope="module")
def target(onnx_reader):
    """A server of the reader in ONNX, which `test_search` compares with a loop."""
    with serving(base=onnx_reader.parent) as server:
        yield f"localhost:{server.port}"


@pytest.fixture(scope="module")
def saved_reader(image_run, tmp_path_factory):
    return export([image_run], tmp_path_factory.mktemp("models") / "digits", beam_width=3)


@pytest.fixture(scope="module")
def saved_target(saved_reader):
    with serving(base=saved_reader.parent) as server:
        yield f"localhost:{server.port}"


@pytest.fixture(params=["target", pytest.param("saved_target", marks=pytest.mark.slow)])
def reader(request):
    with Reader(request.getfixturevalue(request.param), "digits") as reader:
        yield reader


def test_what_is_served_is_what_the_local_reader_reads(reader, onnx_reader):
    images, local = pictures(), LocalReader(onnx_reader, num_results=3)
    for regions, wanted in zip(reader.regions(images), local.regions(images), strict=True):
        assert (regions.text, regions.tokens) == (wanted.text, wanted.tokens)
        for name in ("score", "token_probabilities", "attention_weights"):
            np.testing.assert_allclose(getattr(regions, name), getattr(wanted, name), atol=1e-3)
        assert regions.tokens
    for several, wanted in zip(reader.nbest(images), local.nbest(images), strict=True):
        pairs = zip(several, wanted, strict=False)  # a server has as many as its export
        assert [one.text for one, _ in pairs] == [each.text for each in wanted[: len(several)]]
    assert [each.text for each in reader.read(images)] == [x.text for x in local.read(images)]


def test_paths_arrays_and_bytes_are_the_same_image(target, tmp_path):
    (contents,) = pictures(1)
    (tmp_path / "image.png").write_bytes(contents)
    pixels = np.asarray(Image.open(io.BytesIO(contents)))
    forms = [contents, tmp_path / "image.png", str(tmp_path / "image.png"), pixels]
    forms += [pixels[..., None], np.repeat(pixels[..., None], 3, axis=2)]

    async def read_all():
        async with AsyncReader(target, "digits") as reader:
            return await reader.read(forms), await reader.regions(forms[:1])

    found, (regions,) = asyncio.run(read_all())
    assert {answer.text for answer in found} == {regions.text}
    assert np.ptp([answer.score for answer in found]) < 1e-4


@pytest.mark.parametrize("local", [True, False])
def test_a_broken_image_is_named_and_takes_no_other_down(target, onnx_reader, tmp_path, local):
    images, broken = pictures(5), tmp_path / "broken.png"
    broken.write_bytes(images[1][:-30])
    images[1], images[3] = broken, b"no image"
    kind, place = (LocalReader, [onnx_reader.parent]) if local else (Reader, [target, "digits"])
    with kind(*place, batch_size=1, **({"threads": 2} if local else {})) as reader:
        with pytest.raises(InvalidRequestError, match=r"image 2 \(.*broken.png\).*is cut off"):
            reader.read(images)
        found = reader.regions(images, keep_errors=True)
        good = reader.read([images[0], images[2], images[4]])
        assert [isinstance(answer, InvalidRequestError) for answer in found] == [0, 1, 0, 1, 0]
        assert [found[i].text for i in (0, 2, 4)] == [answer.text for answer in good]
        assert "neither PNG nor JPEG" in str(found[3])
        assert reader.read([]) == reader.regions([]) == []
        with pytest.raises(TypeError, match="list of images"):
            reader.read(images[0])


def test_a_reader_is_no_translator(onnx_reader):
    with pytest.raises(ValueError, match="a model to read, and LocalTranslator needs one to tran"):
        LocalTranslator(onnx_reader)


@pytest.mark.parametrize("local", [True, False])
def test_the_command_reads_draws_and_goes_on_after_a_broken_image(
    target, onnx_reader, tmp_path, capsys, local
):
    names = [str(tmp_path / f"{number}.png") for number in range(3)]
    for name, contents in zip(names, (*pictures(2), b"no image"), strict=True):
        with open(name, "wb") as file:
            file.write(contents)
    place = ["--local", str(onnx_reader)] if local else ["--target", target, "--model", "digits"]
    options = [*place, "--regions", "--png", str(tmp_path / "out.png"), "--json"]
    assert read.main([names[0], names[2], names[1], *options]) == 1
    out, err = capsys.readouterr()
    wanted = [each.text for each in LocalReader(onnx_reader).read(names[:2])]
    assert [json.loads(line)["text"] for line in out.splitlines()] == wanted
    assert f"error: {names[2]}" in err
    for number in (1, 3):
        with Image.open(tmp_path / f"out-{number}.png") as drawn:
            assert drawn.size[0] > 100
    assert read.main(["nowhere.png", *place]) == 1


def refused(client, files):
    """Return the first line that a server says of images."""
    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = "digits", "regions"
    made.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(files))
    code, details = error_of(client.prediction.Predict, made)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    return details.splitlines()[0]


def test_an_image_that_cannot_be_read_is_named_in_one_line(target, stubs):
    said = refused(stubs(target), [*pictures(1), huge_png()])
    assert "image_bytes[1] has 20000 x 20000 pixels: expected at least 1" in said


@pytest.mark.slow
def test_images_that_declare_too_much_or_are_cut_off_are_named_in_one_line(saved_target, stubs):
    images = pictures(4)
    jpeg = encode(np.asarray(Image.open(io.BytesIO(images[3])).convert("RGB")), "jpeg")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    files = [images[0], huge_png(), images[2], jpeg[: len(jpeg) // 2]]
    said = (
        "image_bytes[1] has 20000 x 20000 pixels: expected at least 1 and at most 16,777,216; "
        "image_bytes[3] is cut off"
    )
    assert said in refused(stubs(saved_target), files)
    # In kilobytes; 20,000 x 20,000 pixels of three colours are 1.2 GB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


@pytest.mark.slow
def test_images_of_many_pixels_are_read_a_few_at_a_time(saved_target, stubs):
    """Of 4 kilobytes each, they would take a second of processor time for a handful of them."""
    wide = encode(np.zeros((4001, 4003), np.uint8), "png")
    said = refused(stubs(saved_target), [wide] * 7)
    assert "112112021 pixels together: maximum input batch size 4" in said
    with Reader(saved_target, "digits") as reader:
        assert len({found.text for found in reader.read([wide] * 7)}) == 1


@pytest.mark.slow
def test_the_check_of_a_saved_model_finds_nothing(saved_reader):
    assert check_version(saved_reader) == []


def test_the_check_compares_with_the_run(image_run, onnx_reader, monkeypatch, tmp_path):
    assert check_folder(onnx_reader, image_run.path) == []
    # In eight bits, a model of one epoch reads noise otherwise more often than not.
    rounded = export([image_run], tmp_path / "a", form="onnx", beam_width=3, weights="int8")
    assert json.loads((rounded / "manifest.json").read_text())["agreement"]["texts"] > 0
    assert check_folder(rounded) == []
    monkeypatch.setattr(onnx, "_said_by_run", lambda *arguments: ["?"] * 6)
    assert check_folder(onnx_reader, image_run.path) == [
        f"6 of 6 answers are not those of the run {image_run.path}"
    ]
