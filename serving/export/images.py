"""The SavedModel of a run that reads images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from serving.export.weights import Weights
from training.data.ids import END_ID, PAD_ID
from training.decode.asked import Search
from training.decode.search import search
from training.runs.run import Run
from training.sources.image.source import ImageSource, grid_size


class ExportedReader(tf.Module):
    """Weights, tokenizer and signatures of a reader of images, without the Keras models.

    Args:
        runs: a run, or several that are used as an ensemble.
        beam_width: hypotheses kept for each image.
        length_penalty: see `keras_attention.beam_search`.
        weights: what they are stored as, "float32", "float16" or "bfloat16".
    """

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        beam_width: int = 5,
        length_penalty: float = 1.0,
        weights: str = "float32",
    ) -> None:
        super().__init__()
        models, config = [run.model for run in runs], runs[0].config
        self._hidden = lambda: models  # a SavedModel that holds Keras models is not served
        self._source = lambda: ImageSource(config)
        asked = Search(beam_width=beam_width, length_penalty=length_penalty)
        self._asked = lambda: asked
        self._max_length, self._grid = config.max_target_length, grid_size(config)
        self.target_tokenizer = runs[0].target_tokenizer
        self.weights = Weights(models, weights)
        self.attends = all(run.config.attention != "none" for run in runs)

    def signatures(self) -> dict[str, Any]:
        """Return the functions by the name they are served under."""
        files = tf.TensorSpec([None], tf.string, name="image_bytes")
        functions = {"serving_default": self.read}
        if self.attends:
            functions["regions"] = self.regions
        made = {
            name: tf.function(function, autograph=False).get_concrete_function(files)
            for name, function in functions.items()
        }
        return {**made, "read": made["serving_default"]}

    def warmup(self) -> list[tuple[str, dict[str, tf.Tensor]]]:
        """Return requests to warm up with, each the name of a signature and its inputs."""
        source = self._source()
        blank = tf.zeros([source.height, source.width, source.channels], tf.uint8)
        files = tf.stack([tf.io.encode_png(blank), tf.io.encode_jpeg(blank)])
        names = ["read", *(["regions"] if self.attends else [])]
        return [(name, {"image_bytes": files[:count]}) for name in names for count in (1, 2)]

    def read(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """PNG or JPEG files `(B,)` to `text` `(B,)` and `score` `(B,)`."""
        found = self._search(image_bytes)
        return {
            "text": self.target_tokenizer.detokenize(found.ids[:, 0]),
            "score": found.scores[:, 0],
        }

    def regions(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """The same with `tokens` `(B, T)` and the weights of regions, `(B, T, h, w)`."""
        found = self._search(image_bytes, return_attention_weights=True)
        ids = found.ids[:, 0]
        said = (ids != PAD_ID) & (ids != END_ID)
        weights = tf.where(said[:, :, None], found.attention_weights[:, 0], 0.0)
        height, width = self._grid
        shape = [tf.shape(ids)[0], tf.shape(ids)[1], height, width]
        return {
            "text": self.target_tokenizer.detokenize(ids),
            "score": found.scores[:, 0],
            "tokens": tf.where(said, self.target_tokenizer.tokens(ids), ""),
            "attention_weights": tf.reshape(weights, shape),
        }

    def _search(self, image_bytes: tf.Tensor, **options: Any) -> Any:
        images = self._source().read(image_bytes)
        # TensorFlow 2.21's convolutions give an empty batch a wrong shape: a blank image stands in.
        count = tf.shape(images)[0]
        images = tf.pad(images, [[0, tf.cast(count == 0, tf.int32)], [0, 0], [0, 0], [0, 0]])
        with self.weights.in_use():
            found = search(
                self._hidden(),
                images,
                self._asked(),
                max_length=self._max_length,
                **options,
            )
        return tf.nest.map_structure(lambda x: x if x is None else x[:count], found)
