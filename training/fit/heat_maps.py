"""Heat-maps in TensorBoard: where the decoder looks, after each epoch."""

from __future__ import annotations

import io
import sys
import warnings

import keras
import tensorflow as tf

from keras_attention import plot_attention
from training.data.pair_files import Split
from training.decode.texts import make_attender
from training.runs.run import Run

COUNT = 3
LONGEST = 60  # characters: what is still read on a screen


class HeatMaps(keras.callbacks.Callback):
    """After each epoch, draw the weights of the first dev sentences that are short enough.

    The pictures are `alignment/0` … in `tensorboard/alignments`; TensorBoard reads one file of
    events a folder, and Keras writes to the others.
    """

    def __init__(self, run: Run, dev: Split) -> None:
        super().__init__()
        pairs = [(s, texts[0]) for s, texts in zip(dev.sources, dev.references, strict=True)]
        short = [pair for pair in pairs if max(map(len, pair)) <= LONGEST] or pairs
        self.sources, self.targets = zip(*short[:COUNT], strict=True)
        self.attend = make_attender([run])
        self.told = False  # that a font is missing
        self.writer = tf.summary.create_file_writer(str(run.files.tensorboard / "alignments"))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Draw and write the pictures; that a font is missing is said once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._draw(epoch)
        for warning in caught:
            about_fonts = str(warning.message).startswith("no installed font has")
            if not about_fonts or not self.told:
                print(f"Warning: heat-maps: {warning.message}", file=sys.stderr)
            self.told = self.told or about_fonts

    def _draw(self, epoch: int) -> None:
        with self.writer.as_default(epoch):
            for number, attended in enumerate(self.attend(self.sources, self.targets)):
                file = io.BytesIO()
                plot_attention(
                    attended.source_tokens, attended.target_tokens, attended.weights, file
                )
                picture = tf.io.decode_png(file.getvalue(), channels=3)
                tf.summary.image(f"alignment/{number}", picture[None])
        self.writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Close the file."""
        self.writer.close()
