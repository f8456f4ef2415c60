"""Images as models read them, compared with Pillow."""

import functools
import io
import itertools
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from training.command.errors import ConfigError, UserError
from training.config.schema import Config
from training.data.batches._batches import Batches
from training.data.batches._plan import Batching
from training.data.tokens.store import Sequences
from training.sources.image._size import grid_size, parse_convolutions
from training.sources.image._source import GridPositions, Images, ImageSource

VALUES = np.add.outer(np.arange(40) * 3, np.arange(80)).astype("uint8")
SMOOTH = Image.fromarray(np.stack([VALUES, VALUES[::-1], 255 - VALUES], axis=-1))


def image_config(**settings):
    sizes = {"image_height": 13, "image_width": 29}
    return Config(source="image", **{**sizes, **settings})


def encode(pixels, form="png", **options):
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(file, form, **options)
    return file.getvalue()


def drawn(*shape, most=256, seed=0):
    return np.random.default_rng(seed).integers(0, most, shape).astype("uint8")


@pytest.fixture
def pixels():
    return drawn(13, 29, 3, seed=3)


@functools.cache
def reader_of(channels):
    """A reader of images, which is traced once."""
    return ImageSource(image_config(image_channels=channels))


@pytest.fixture
def source():
    return reader_of(1)


def huge_png():
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    body = struct.pack(">I", 13) + b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + body + struct.pack(">I", zlib.crc32(b"IHDR" + header))


def test_pixels_are_read_as_they_are(source, pixels):
    gray = pixels[..., 0]
    np.testing.assert_array_equal(source.read(tf.constant([encode(gray)]))[0, :, :, 0], gray)
    colored = reader_of(3)
    files = [encode(pixels), encode(SMOOTH, "jpeg"), encode(gray)]  # of any kind and size
    found = colored.read(tf.constant(files))
    np.testing.assert_array_equal(found[0], pixels)
    np.testing.assert_array_equal(found[2], np.repeat(gray[..., None], 3, -1))
    np.testing.assert_array_equal(found[1], colored.read(tf.constant(files[1:2]))[0])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("image", "form", "most"),
    [
        *((SMOOTH, "png", 2), (SMOOTH, "jpeg", 12), (Image.fromarray(VALUES), "png", 2)),
        (SMOOTH.crop((3, 4, 4, 5)), "png", 1),  # of one pixel
        (SMOOTH.crop((0, 4, 29, 5)), "png", 1),  # of one row
        (SMOOTH.crop((0, 0, 29, 13)).quantize(200), "png", 1),  # with a palette
        (SMOOTH.crop((0, 0, 29, 13)).convert("1"), "png", 1),  # of one bit
    ],
)
def test_images_of_all_kinds_are_read_as_by_another_library(channels, image, form, most):
    source = reader_of(channels)
    file = encode(image, form, **({"quality": 95} if form == "jpeg" else {}))
    found = source.rows([file]).values[0].astype(int)
    mode = image.convert("RGB").convert("RGB" if channels == 3 else "L")
    wanted = np.asarray(mode.resize((29, 13), Image.Resampling.BILINEAR)).reshape(found.shape)
    assert np.abs(found - wanted).max() <= most
    np.testing.assert_array_equal(source.read(tf.constant([file]))[0], found)


def test_an_image_of_16_bits_has_its_upper_half(source, pixels):
    deep = encode((pixels[..., 0].astype("uint16")) * 257)
    np.testing.assert_array_equal(source.rows([deep]).values[0, ..., 0], pixels[..., 0])


BROKEN = {
    "empty": (lambda p: b"", "is neither PNG nor JPEG"),
    "huge": (lambda p: huge_png(), "has 20000 x 20000 pixels: expected at least 1"),
    "half a JPEG": (lambda p: encode(p, "jpeg")[:-100], "is cut off"),
    "half a PNG": (lambda p: encode(p)[:-100], "is cut off"),
    "CMYK": (lambda p: encode(Image.fromarray(p).convert("CMYK"), "jpeg"), "is a JPEG in CMYK"),
    "no content": (lambda p: b"\xff\xd8\xff\xe0" + b"\0" * 90 + b"\xff\xd9", "cannot be decoded"),
    "holes": (lambda p: encode(p)[:60] + b"\0" * 40 + encode(p)[100:], "cannot be decoded"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_no_image_is_one_clear_line(kind, source, pixels, tmp_path):
    make, said = BROKEN[kind]
    path = tmp_path / "broken.png"
    path.write_bytes(make(pixels))
    good = encode(pixels)
    with pytest.raises(UserError, match=f"^{path} {said}"):
        source.rows([good, path, good])
    with pytest.raises(UserError, match=f"^2 of 3 images cannot be read: {path} {said}.*; {path}"):
        source.rows([path, good, path])


def test_all_broken_images_of_a_batch_are_named(source, pixels):
    batch = tf.constant([b"x", encode(pixels), encode(pixels)[:-50], encode(pixels)])
    said = r"image_bytes\[0\] is neither PNG nor JPEG; image_bytes\[2\] is cut off"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        source.read(batch)


def test_images_are_moved_in_training_alone():
    values, rows = drawn(5, 7, 11, 1), np.array([3, 0, 1, 4])
    for images in (Images(values), Images(values, shift=2)):
        np.testing.assert_array_equal(images.read(rows), values[rows])
    moved = Images(values, shift=2).in_epoch(0).read(rows)
    places = set()
    for image, row in zip(moved, rows, strict=True):
        wide = np.pad(values[row], ((2, 2), (2, 2), (0, 0)), mode="edge")
        for y, x in itertools.product(range(5), range(5)):
            if (wide[y : y + 7, x : x + 11] == image).all():
                places.add((y, x))
    assert len(places) > 1
    assert moved.shape == (4, 7, 11, 1)


def test_an_image_moves_anew_in_each_epoch_whatever_its_batch():
    """The move depends on the seed, the epoch and the image only."""
    values, texts = drawn(11, 7, 13, 1), Sequences.of(np.full(22, 5), np.full(11, 2))

    def pictures(size, epoch, seed=1):
        images = Images(values, shift=2, seed=seed)
        batches = Batches(Batching(size, 1, 9, seed=seed), images, texts, training=True)
        rows, starts, sizes, *_ = batches.plan.epoch(epoch)
        rows = np.concatenate([rows[a : a + n] for a, n in zip(starts, sizes, strict=True)])
        read = np.concatenate([inputs["source"] for inputs, _ in batches.epoch(epoch)])
        return {int(row): image.tobytes() for row, image in zip(rows, read, strict=True)}

    drawn_20_times = [pictures(1, epoch) for epoch in range(20)]
    for number in range(11):  # there are 25 moves
        assert len({each[number] for each in drawn_20_times}) > 8
    first = drawn_20_times[3]
    assert pictures(1, 3) == pictures(2, 3) == pictures(5, 3) == first != pictures(2, 3, seed=2)
    images = Images(values, shift=2, seed=1).in_epoch(3)
    assert images.read(np.array([7]))[0].tobytes() == first[7]


def test_batches_of_images_do_not_tell_how_long_their_texts_are():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 8, 210)
    images = Images(np.arange(210 * 6, dtype="uint8").reshape(210, 2, 3, 1))
    texts = Sequences.of(rng.integers(4, 9, lengths.sum()), lengths)
    batches = Batches(Batching(30, 1, 9), images, texts, training=True)
    for inputs, labels in batches.dataset().as_numpy_iterator():
        assert inputs["source"].shape[1:] == (2, 3, 1)
        assert len(set((labels != 0).sum(axis=1))) > 3


def test_the_grid_is_as_large_as_the_pooling_leaves_it():
    config = image_config(convolutions="3:2x2 5k1:1x3")
    assert parse_convolutions(config) == [(3, 3, 2, 2), (5, 1, 1, 3)]
    assert grid_size(config) == (6, 4)
    grid, mask, *_ = ImageSource.build_encoder(config, 0)(np.zeros((2, 13, 29, 1), "uint8"))
    assert grid.shape == (2, 6, 4, 5 + 16)
    np.testing.assert_array_equal(mask, np.ones((2, 6, 4), bool))


def test_brightness_and_contrast_of_an_image_change_nothing():
    encoder = ImageSource.build_encoder(image_config(convolutions="3:2x2 5:1x3"), 0)
    image, other = (drawn(1, 13, 29, 1, most=100, seed=seed) for seed in (0, 1))
    found = encoder(np.concatenate([image, 2 * image + 37, other]))[0].numpy()
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)
    assert np.abs(found[2] - found[0]).max() > 0.01
    assert np.isfinite(encoder(np.full((1, 13, 29, 1), 255, "uint8"))[0].numpy()).all()


IN_LINE = {"attention": "hard_monotonic", "order": "luong"}
FORM = "needs FILTERS:DOWNxACROSS"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"convolutions": "32"}, f"{FORM} for each, such as 32:2x2 64k5:2x1, but it is 32"),
        ({"convolutions": ""}, FORM),
        ({"convolutions": "8:0x1"}, FORM),
        ({"convolutions": "8:4x4 8:4x4"}, "larger than all their pooling, .* are 13 x 29 pixels"),
        ({"convolutions": "3:2x2", **IN_LINE}, "leave one row, but 3:2x2 leave 6"),
    ],
)
def test_convolutions_that_cannot_be_are_one_clear_line(settings, said):
    with pytest.raises(ConfigError, match=said):
        grid_size(image_config(**settings))


def test_columns_are_read_in_order_where_one_row_of_them_is_left():
    config = image_config(**IN_LINE, convolutions="3:13x2")
    memory, mask, *_ = ImageSource.build_encoder(config, 0).output
    assert (memory.shape, mask.shape) == ((None, 14, 3 + 16), (None, 14))


def test_every_place_of_a_grid_has_positions_of_its_own():
    found = GridPositions()(np.zeros((2, 5, 7, 3), "float32")).numpy()
    assert found.shape == (2, 5, 7, 19)
    places = found[0, :, :, 3:].reshape(35, 16)
    assert len(np.unique(places.round(5), axis=0)) == 35
    np.testing.assert_array_equal(found[0], found[1])
