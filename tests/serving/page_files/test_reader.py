"""The browser's reader of images, in Node, against `LocalReader`."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from serving.client.local import LocalReader
from serving.client.local.pixels import read_image, resize
from serving.export.readers import ExportedReader
from serving.export.version import export
from serving.page.files.model import pack
from tests.serving.javascript import needs_node, run
from training.sources.image import digits

pytestmark = needs_node
READ = """
import { readFileSync } from "node:fs";
import { readModel } from "engine/model.js";
import { Reader } from "engine/reader.js";
const { file, images } = JSON.parse(readFileSync(0, "utf8"));
const reader = new Reader(readModel(Uint8Array.from(Buffer.from(file, "base64")).buffer));
const found = images.map((pixels) => reader.read(Uint8Array.from(pixels)));
process.stdout.write(JSON.stringify(found));
"""
RESIZE = """
import { readFileSync } from "node:fs";
import { resize } from "engine/pixels.js";
const { pixels, dims, size } = JSON.parse(readFileSync(0, "utf8"));
const found = resize(Float32Array.from(pixels), dims, ...size);
process.stdout.write(JSON.stringify(Array.from(found)));
"""
ON_WHITE = """
import { readFileSync } from "node:fs";
import { onWhite } from "engine/pixels.js";
const { data, channels } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(Array.from(onWhite(Uint8Array.from(data), channels))));
"""


@pytest.fixture(scope="module")
def version(image_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("reader")
    return export([image_run], root / "digits", form="onnx", beam_width=3)


def in_node(version, images):
    manifest = json.loads((version / "manifest.json").read_text())
    size = [manifest["source"][name] for name in ("height", "width", "channels")]
    file = base64.b64encode(pack(version, manifest, {})).decode()
    pixels = [read_image(image, *size).ravel().tolist() for image in images]
    return run(READ, given={"file": file, "images": pixels})


def test_texts_and_regions_are_those_of_the_local_reader(version):
    images = [example.image for example in digits.make(5, seed=9)]
    for one, wanted in zip(
        in_node(version, images), LocalReader(version).regions(images), strict=True
    ):
        assert (one["text"], tuple(one["tokens"])) == (wanted.text, wanted.tokens)
        np.testing.assert_allclose(one["score"], wanted.score, atol=1e-4)
        np.testing.assert_allclose(one["weights"], wanted.attention_weights, atol=1e-4)


def test_probabilities_and_other_readings_are_those_of_the_saved_model(version, image_run):
    images = [example.image for example in digits.make(5, seed=9)]
    exported = ExportedReader([image_run], beam_width=3)
    nbest, sure = exported.nbest(image_bytes=images), exported.read(image_bytes=images)
    for row, one in enumerate(in_node(version, images)):
        texts = [text.decode() for text in nbest["texts"][row].numpy()]
        assert [each["text"] for each in one["hypotheses"]] == texts
        scores = [each["score"] for each in one["hypotheses"]]
        np.testing.assert_allclose(scores, nbest["scores"][row], atol=1e-4)
        wanted = sure["token_probabilities"][row][: len(one["tokens"])]
        np.testing.assert_allclose(one["token_probabilities"], wanted, atol=1e-4)


@pytest.mark.parametrize(("dims", "size"), [((31, 17, 3), (13, 29)), ((5, 7, 1), (11, 3))])
def test_images_are_resized_as_by_the_local_reader(dims, size, rng):
    pixels = rng.integers(0, 256, dims).astype("uint8")
    given = {"pixels": pixels.ravel().tolist(), "dims": dims, "size": size}
    np.testing.assert_array_equal(run(RESIZE, given=given), resize(pixels, *size).ravel())


@pytest.mark.parametrize("channels", [1, 3])
def test_transparent_images_lie_on_white_as_with_the_local_reader(channels, rng):
    pixels = rng.integers(0, 256, (7, 11, 4)).astype("uint8")
    pixels[0, :3, 3] = 0, 255, 255
    pixels[1, :, :3] = pixels[1, :, :1]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    given = {"data": pixels.ravel().tolist(), "channels": channels}
    wanted = read_image(file.getvalue(), 7, 11, channels)
    np.testing.assert_array_equal(run(ON_WHITE, given=given), wanted.ravel())
