"""The kinds of sources, by the configuration's key `source`."""

from __future__ import annotations

import keras

from training.config.schema import Config
from training.sources.events.source import EventSource
from training.sources.image.source import ImageSource
from training.sources.source import Source
from training.sources.text.source import TextSource

SOURCES: dict[str, type[Source]] = {
    source.kind: source for source in (TextSource, ImageSource, EventSource)
}


def source_class(config: Config) -> type[Source]:
    """Return the kind of source that a configuration attends to."""
    return SOURCES[config.source]


def build_encoder(config: Config, size: int) -> keras.Model:
    """Build the encoder of a configuration's source: see `Source.build_encoder`."""
    return source_class(config).build_encoder(config, size)
