"""Images as sources: decoded, resized, and encoded by convolutions into a grid."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from training.command.errors import UserError
from training.config.schema import Config
from training.data.read._sentences import Split, digest_of
from training.graphs import graph
from training.sources._source import Source, encoded
from training.sources.image import _data as images
from training.sources.image._size import grid_size, parse_convolutions, tell_squeezed

Tensor = Any
_TOGETHER = 1 << 26  # most pixels of all images of a request
_MOVES = 1  # sets the draw of moves apart from other draws of an epoch
_CHUNK = 256  # images read together
_MOST_NAMED = 20  # most unreadable files in a message
_MOST_SHOWN = 20_000  # most bytes of an image on the demo page


@dataclass(frozen=True)
class Images:
    """Images of one size."""

    values: np.ndarray  # uint8 `(N, H, W, C)`
    shift: int = 0  # most pixels by which an epoch moves an image along each axis
    seed: int = 0  # seed of the moves
    moves: np.ndarray | None = None  # pixels down and across by which images move, `(N, 2)`

    @property
    def lengths(self) -> np.ndarray:
        """The length 1 of each image, int32 `(N,)`."""
        return np.ones(len(self.values), np.int32)

    def in_epoch(self, number: int) -> Images:
        """Return the images as an epoch reads them: moved at random by at most `shift` pixels.

        The move of an image depends only on the seed, the epoch and the number of the image.
        """
        if not self.shift:
            return self
        rng = np.random.default_rng([self.seed, number, _MOVES])
        moves = rng.integers(-self.shift, self.shift, (len(self.values), 2), endpoint=True)
        return replace(self, moves=moves)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of rows `(B,)`, uint8 `(B, H, W, C)`.

        Pixels that come into view repeat the edge.
        """
        if self.moves is None:
            return self.values[rows]
        y, x = (  # (B, H) and (B, W): the row and the column that each pixel is read from
            np.clip(np.arange(size) + by[:, None], 0, size - 1)
            for size, by in zip(self.values.shape[1:3], self.moves[rows].T, strict=True)
        )
        return self.values[rows[:, None, None], y[:, :, None], x[:, None, :]]


class ImageSource(Source):
    """PNG or JPEG files, resized to one size."""

    def __init__(self, config: Config) -> None:
        self.height, self.width = config.image_height, config.image_width
        self.channels, self.shift = config.image_channels, config.max_shift_pixels
        self.seed = config.seed
        self.places = grid_size(config)

    @classmethod
    def load_training(cls, config: Config, source: Source | None = None) -> tuple[Split, Split]:
        """Read images and their texts: see `training.sources.image._data`."""
        return images.load_training(config.data, config.train_limit, config.seed)

    def load_split(self, config: Config, spec: str, split: str, limit: int | None = None) -> Split:
        """Read images and their texts: see `training.sources.image._data`."""
        return images.load(spec, split, limit=limit)

    @classmethod
    def make(cls, config: Config, data: Split) -> ImageSource:
        """Return the source, which learns nothing from data; print what its image size loses."""
        tell_squeezed(config, data)
        return cls(config)

    @classmethod
    def load(cls, config: Config, folder: Path) -> ImageSource:
        """Return the source; it needs only the run's configuration."""
        return cls(config)

    @classmethod
    def fingerprint(cls, train: Split, dev: Split) -> str:
        """Return the SHA-256 of all files and texts."""
        digest = hashlib.sha256()
        for part in (train, dev):
            for file, text in part.pairs():
                digest.update(file.read_bytes() if isinstance(file, Path) else file)
                digest.update(f"\t{text}\n".encode())
            digest.update(b"\n")
        return digest.hexdigest()

    def digests(self, data: Split) -> np.ndarray:
        """Return a number for the bytes of each file, uint64 `(n,)`."""
        files = (file.read_bytes() if isinstance(file, Path) else file for file in data.sources)
        return np.array([digest_of(file) for file in files], np.uint64)

    def inputs(self) -> dict[str, tuple[tuple[int | None, ...], str]]:
        """Return the input of an export: PNG or JPEG files, string `(B,)`."""
        return {"image_bytes": ((None,), "string")}

    def examples(self, count: int) -> dict[str, Any]:
        """Return `count` blank images, PNG and JPEG in turn."""
        import tensorflow as tf

        blank = tf.zeros([self.height, self.width, self.channels], tf.uint8)
        files = [tf.io.encode_png(blank), tf.io.encode_jpeg(blank)]
        return {"image_bytes": tf.stack([files[number % 2] for number in range(count)])}

    def shown(self, config: Config, count: int) -> list[str]:
        """Return small image files of the dev split, in base64."""
        sources = self.load_split(config, config.data, "dev", limit=count).sources
        files = [file.read_bytes() if isinstance(file, Path) else file for file in sources]
        return [base64.b64encode(file).decode() for file in files if len(file) <= _MOST_SHOWN]

    def read(  # type: ignore[override]
        self, image_bytes: Tensor, most_pixels: int | None = _TOGETHER
    ) -> Tensor:
        """Read PNG or JPEG files, in TensorFlow's graph.

        Args:
            image_bytes: string `(B,)`.
            most_pixels: most pixels of all images together, if there are several; None for no
                limit. An image of few bytes may have millions of pixels.

        Returns:
            uint8 `(B, H, W, C)`.

        Raises InvalidArgumentError for files that cannot be read, with their numbers, from 0, and
        the reasons. For too many pixels, the error has the number of images to send, in the words
        of TensorFlow Serving for a batch that is too large, which clients understand.
        """
        import tensorflow as tf

        from training.sources.image._decode import decode
        from training.sources.image._whole import joined, reason_not_to_decode

        image_bytes = tf.ensure_shape(image_bytes, [None])
        specs = (tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64))
        reasons, pixels = tf.map_fn(reason_not_to_decode, image_bytes, fn_output_signature=specs)
        bad = tf.where(reasons != "")[:, 0]
        number = tf.strings.as_string(bad)
        lines = tf.strings.join(["image_bytes[", number, "] ", tf.gather(reasons, bad)])
        message = tf.strings.reduce_join(lines, separator="; ")
        checks = [tf.debugging.Assert(tf.size(bad) == 0, [message])]
        if most_pixels is not None:
            count, total = tf.size(pixels, tf.int64), tf.reduce_sum(pixels)
            fewer = tf.maximum(count * most_pixels // tf.maximum(total, 1), 1)
            said = joined("images have", total, "pixels together: maximum input batch size", fewer)
            fits = (total <= most_pixels) | (count <= 1)
            checks.append(tf.debugging.Assert(fits, [said]))
        with tf.control_dependencies(checks):
            image_bytes = tf.identity(image_bytes)
        size = [self.height, self.width]

        def read_one(contents: Tensor) -> Tensor:
            image = tf.image.resize(decode(contents, self.channels), size, antialias=True)
            return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)

        spec = tf.TensorSpec([*size, self.channels], tf.uint8)
        return tf.map_fn(read_one, image_bytes, fn_output_signature=spec)

    @functools.cached_property
    def _compiled(self) -> Any:
        """`read`, compiled once for all calls."""
        import tensorflow as tf

        spec = tf.TensorSpec([None], tf.string)
        read = functools.partial(self.read, most_pixels=None)
        return graph(spec)(read)

    def rows(self, raw: Sequence[bytes | Path], training: bool = False) -> Images:
        """Read image files, given as paths or bytes; raise a UserError for unreadable files."""
        import tensorflow as tf

        read = self._compiled
        values = np.zeros((len(raw), self.height, self.width, self.channels), np.uint8)
        faults = list[str]()
        for first in range(0, len(raw), _CHUNK):
            chunk = raw[first : first + _CHUNK]
            files = [each.read_bytes() if isinstance(each, Path) else each for each in chunk]
            try:
                values[first : first + _CHUNK] = read(tf.constant(files, tf.string))
            except tf.errors.InvalidArgumentError:
                faults += self._faults(read, chunk, files, first)
        if faults:
            several = f"{len(faults):,} of {len(raw):,} images cannot be read: " * (len(faults) > 1)
            more = "; …" * (len(faults) > _MOST_NAMED)
            remedy = "; mend it, or delete its line of the labels" * isinstance(raw[0], Path)
            raise UserError(f"{several}{'; '.join(faults[:_MOST_NAMED])}{more}{remedy}")
        return Images(values, self.shift if training else 0, self.seed)

    def _faults(self, read: Any, chunk: Sequence, files: list[bytes], first: int) -> Iterator[str]:
        """Yield a message for each file that cannot be read: its name and the reason."""
        import tensorflow as tf

        for number, (each, contents) in enumerate(zip(chunk, files, strict=True), first):
            try:
                read(tf.constant([contents], tf.string))
            except tf.errors.InvalidArgumentError as error:
                match = re.search(r"image_bytes\[0\] ([^;\]\n]*)", error.message)
                name = each if isinstance(each, Path) else f"image {number + 1}"
                yield f"{name} {match[1] if match else 'cannot be decoded'}"

    @staticmethod
    def build_encoder(config: Config, size: int) -> keras.Model:
        """Build the encoder from images, uint8 `(B, H, W, C)`, to the outputs of `encoded`.

        Convolutions with pooling make a grid (Xu et al. 2015, arXiv 1502.03044, attend to such a
        grid). `GridPositions` appends row, column and their sines to the vectors of the grid.
        """
        shape = (config.image_height, config.image_width, config.image_channels)
        source = keras.Input(shape, dtype="uint8", name="source")
        # Standardise each image by its own mean and deviation. On a light background, batch
        # normalisation's running means are large compared with its deviations, and become wrong
        # when the weights change.
        x, axes = ops.cast(source, "float32"), (1, 2, 3)
        deviation = ops.std(x, axis=axes, keepdims=True)
        x = (x - ops.mean(x, axis=axes, keepdims=True)) / ops.maximum(deviation, 1.0)
        for filters, kernel, down, across in parse_convolutions(config):
            x = keras.layers.Conv2D(filters, kernel, padding="same", use_bias=False)(x)
            # With a momentum of 0.99, a short run ends before the statistics have converged.
            x = keras.layers.BatchNormalization(momentum=0.9)(x)
            x = keras.layers.Activation("relu")(x)
            if (down, across) != (1, 1):
                x = keras.layers.MaxPooling2D((down, across))(x)
        x = GridPositions(name="positions")(x)
        mask = ops.ones_like(x[..., 0], dtype="bool")
        summary = ops.mean(x, axis=(1, 2))
        if config.attention == "hard_monotonic":  # the grid has one row: (B, W, dim)
            x, mask = x[:, 0], mask[:, 0]
        outputs = encoded(config, x, mask, summary)
        return keras.Model(source, outputs, name="encoder")


class GridPositions(keras.layers.Layer):
    """Appends 16 position features to a grid `(B, H, W, dim)`: row, column and their sines."""

    def call(self, grid: Tensor) -> Tensor:
        """Return the grid with positions, `(B, H, W, dim + 16)`."""
        positions = ops.convert_to_tensor(self._positions(*grid.shape[1:3]), self.compute_dtype)
        tiled = ops.broadcast_to(positions, (ops.shape(grid)[0], *positions.shape))
        return ops.concatenate([grid, tiled], axis=-1)

    @staticmethod
    def _positions(height: int, width: int) -> np.ndarray:
        y, x = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
        waves = [(x, k) for k in (1, 2, 4, 8, 16)] + [(y, k) for k in (1, 2)]
        parts = [wave(np.pi * k * z) for z, k in waves for wave in (np.sin, np.cos)]
        return np.stack([y, x, *parts], axis=-1).astype("float32")
