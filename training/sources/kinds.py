"""The kinds of sources, by the configuration's key `source`: a line for each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from training.config.schema import Config
from training.sources.events.kind import KIND as EVENTS
from training.sources.image.kind import KIND as IMAGE
from training.sources.text.kind import KIND as TEXT

if TYPE_CHECKING:
    import keras

    from training.sources.source import Source

KINDS = {kind.name: kind for kind in (TEXT, IMAGE, EVENTS)}


def source_class(config: Config) -> type[Source]:
    """Return the kind of source that a configuration attends to."""
    module, _, name = KINDS[config.source].reader.partition(":")
    found: type[Source] = getattr(importlib.import_module(module), name)
    return found


def build_encoder(config: Config, size: int) -> keras.Model:
    """Build the encoder of a configuration's source: see `Source.build_encoder`."""
    return source_class(config).build_encoder(config, size)
