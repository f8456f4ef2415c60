"""Keys of sources: texts, images, histories of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.command.errors import ConfigError
from training.config.keys import key

TOKENIZERS = ("sentencepiece", "words", "characters", "letters", "symbols")
CELLS = {"simple_rnn": "SimpleRNNCell", "gru": "GRUCell", "lstm": "LSTMCell"}  # of keras.layers


@dataclass(frozen=True)
class Recurrent:
    """The encoder of a sequence, see `training.sources.recurrent`."""

    encoder: str = key("gru", "recurrent cell of the encoder", choices=CELLS)
    bidirectional: bool = key(True, "read the source in both directions")
    encoder_layers: int = key(1, "recurrent layers of the encoder")
    encoder_units: int = key(256, "units of the encoder's cell, in each direction")


@dataclass(frozen=True)
class Text(Recurrent):
    """Texts, see `training.data` and `training.sources.text`."""

    targets: ClassVar[tuple[str, ...]] = ("text",)

    dev: str = key(
        "",
        "development data: a SPEC, or the share of the files' lines to hold out, such as "
        "0.05; default: the corpus's dev split, or some 300 of the lines, 1,000 of many",
    )
    test: str = key(
        "", "test data of training.evaluate, as dev; default: the corpus's test split, or none"
    )
    extra_data: str = key(
        "",
        "further training data: SPECs with spaces between them; sources that dev or test have "
        "are left out",
    )
    source_tokenizer: str = key("sentencepiece", "tokenizer of sources", choices=TOKENIZERS)
    source_vocab_size: int = key(8000, "largest source vocabulary")
    max_source_length: int = key(60, "longest source, in tokens; longer pairs are left out")
    join: float = key(
        0.0,
        "share of batches in which several pairs are joined to one, for longer texts",
        least=0,
        below=1,
    )
    subword_sampling: float = key(
        0.0,
        "subword regularisation: the power of the probabilities by which subwords are drawn, "
        "such as 0.2; 0 for none",
        least=0,
    )
    batch_tokens: int = key(
        0,
        "tokens of the longer side in a batch, padding included, in place of batch_size; 0 "
        "for none",
        least=0,
    )
    copy: bool = key(
        False, "copy words that the vocabulary lacks from the source, by a pointer-generator"
    )
    copy_hidden: float = key(
        0.0,
        "share of training pairs whose names and numbers are hidden, so that they are copied",
        least=0,
        below=1,
    )

    def check(self) -> None:
        """Refuse keys that do not go together."""
        if self.copy_hidden and not self.copy:
            raise ConfigError("copy_hidden expected copy. Received: copy = false")
        if self.batch_tokens and self.join:
            raise ConfigError(f"batch_tokens expected join = 0. Received: {self.join}")
        if self.copy and self.join:
            raise ConfigError(f"copy expected join = 0. Received: {self.join}")


@dataclass(frozen=True)
class Image:
    """Images, see `training.sources.image`."""

    targets: ClassVar[tuple[str, ...]] = ("text",)

    image_height: int = key(64, "height to which images are resized, in pixels")
    image_width: int = key(256, "width to which images are resized, in pixels")
    image_channels: int = key(1, "channels: 1 for grey, 3 for colour", choices=(1, 3))
    convolutions: str = key(
        "32:2x2 64:2x2 96:2x1 128:1x1",
        "convolutions, each FILTERS:DOWNxACROSS with its pooling; 64k5:1x1 has a kernel of 5 "
        "x 5 pixels, not 3 x 3",
    )
    shift: int = key(0, "most pixels by which training images are moved at random", least=0)


@dataclass(frozen=True)
class Events(Recurrent):
    """Histories, see `training.sources.events`."""

    targets: ClassVar[tuple[str, ...]] = ("label",)

    max_events: int = key(32, "events read of a history, the last ones")
