"""Images from export to client, and what goes wrong on the way."""

import asyncio
import io
import resource

import grpc
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import predict_pb2

from serving.api._errors import InvalidRequestError
from serving.check._version import check_version
from serving.client import _read as read
from serving.client._clients import AsyncReader, Reader
from serving.export._version import export
from serving.portable.read import LocalReader
from tests.serving.conftest import error_of, serving
from tests.training.sources.test_image import encode, huge_png
from training.sources.image import _digits as digits


@pytest.fixture(scope="module")
def models(image_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    export([image_run], root / "digits", beam_width=3)
    return root


@pytest.fixture(scope="module")
def image_target(models):
    with serving(base=models / "digits") as server:
        yield f"localhost:{server.port}"


def pictures(count=3):
    return digits.make(count, seed=9).sources


@pytest.mark.slow
def test_the_export_check_finds_nothing(models):
    assert check_version(models / "digits" / "1") == []


def test_what_is_served_is_what_the_local_reader_reads(onnx_reader, image_target):
    """Which `test_search` holds to a loop."""
    images, local = pictures(), LocalReader(onnx_reader, num_results=3)
    with Reader(image_target, "digits") as reader:
        found = [getattr(reader, name)(images) for name in ("regions", "nbest", "read")]
    for regions, wanted in zip(found[0], local.regions(images), strict=True):
        assert (regions.text, regions.tokens) == (wanted.text, wanted.tokens)
        for name in ("score", "token_probabilities", "attention_weights"):
            np.testing.assert_allclose(getattr(regions, name), getattr(wanted, name), atol=1e-3)
    for several, wanted in zip(found[1], local.nbest(images), strict=True):
        assert [each.text for each in several] == [each.text for each in wanted]
    assert [each.text for each in found[2]] == [each.text for each in found[0]]
    assert any(regions.tokens for regions in found[0])


def test_paths_arrays_and_bytes_are_the_same_image(image_target, tmp_path):
    (contents,) = pictures(1)
    (tmp_path / "image.png").write_bytes(contents)
    pixels = np.asarray(Image.open(io.BytesIO(contents)))
    forms = [contents, tmp_path / "image.png", str(tmp_path / "image.png"), pixels]
    forms += [pixels[..., None], np.repeat(pixels[..., None], 3, axis=2)]
    with Reader(image_target, "digits") as reader:
        found = reader.read(forms)
    assert len({answer.text for answer in found}) == 1
    assert np.ptp([answer.score for answer in found]) < 1e-4

    async def read_all():
        async with AsyncReader(image_target, "digits") as reader:
            return await reader.read(forms[:1]), await reader.regions(forms[:1])

    (one,), (regions,) = asyncio.run(read_all())
    assert one.text == regions.text


def test_a_broken_image_is_named_and_takes_no_other_down(image_target, tmp_path):
    images = pictures(5)
    broken = tmp_path / "broken.png"
    broken.write_bytes(images[1][:-30])
    images[1], images[3] = broken, b"no image"
    with Reader(image_target, "digits") as reader:
        with pytest.raises(InvalidRequestError, match=r"image 2 \(.*broken.png\).*is cut off"):
            reader.read(images)
        found = reader.regions(images, keep_errors=True)
        good = reader.read([images[0], images[2], images[4]])
    assert [isinstance(answer, InvalidRequestError) for answer in found] == [0, 1, 0, 1, 0]
    assert [found[i].text for i in (0, 2, 4)] == [answer.text for answer in good]
    assert "neither PNG nor JPEG" in str(found[3])


def test_the_command_reads_draws_and_goes_on_after_a_broken_image(image_target, tmp_path, capsys):
    names = []
    for number, contents in enumerate(pictures(2)):
        names.append(str(tmp_path / f"{number}.png"))
        (tmp_path / f"{number}.png").write_bytes(contents)
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    options = ["--target", image_target, "--model", "digits", "--regions"]
    options += ["--png", str(tmp_path / "out.png"), "--json"]
    assert read.main([names[0], str(bad), names[1], *options]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert f"error: {bad}" in err
    with Image.open(tmp_path / "out-1.png") as drawn:
        assert drawn.size[0] > 100
    assert (tmp_path / "out-3.png").exists()
    assert read.main(["nowhere.png", *options[:4]]) == 1


def refused(client, files):
    """Return the first line that a server says of images."""
    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = "digits", "regions"
    made.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(files))
    code, details = error_of(client.prediction.Predict, made)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    return details.splitlines()[0]


def test_images_that_declare_too_much_or_are_cut_off_are_named_in_one_line(image_target, stubs):
    images = pictures(4)
    jpeg = encode(np.asarray(Image.open(io.BytesIO(images[3])).convert("RGB")), "jpeg")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    files = [images[0], huge_png(), images[2], jpeg[: len(jpeg) // 2]]
    said = (
        "image_bytes[1] has 20000 x 20000 pixels: expected at least 1 and at most 16,777,216; "
        "image_bytes[3] is cut off"
    )
    assert said in refused(stubs(image_target), files)
    # In kilobytes; 20,000 x 20,000 pixels of three colours are 1.2 GB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_images_of_many_pixels_are_read_a_few_at_a_time(image_target, stubs):
    """Of 4 kilobytes each, they would take a second of processor time for a handful of them."""
    wide = encode(np.zeros((4001, 4003), np.uint8), "png")
    said = refused(stubs(image_target), [wide] * 7)
    assert "112112021 pixels together: maximum input batch size 4" in said
    with Reader(image_target, "digits") as reader:
        assert len({found.text for found in reader.read([wide] * 7)}) == 1
