"""The kinds of sources, by the configuration's key `source`, each declared in its folder."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from training.config.schema import SOURCES, Config

if TYPE_CHECKING:
    import keras

    from training.sources.kind import Kind
    from training.sources.source import Source

KINDS: dict[str, Kind] = {
    name: importlib.import_module(f"training.sources.{name}.kind").KIND for name in SOURCES
}


def source_class(config: Config) -> type[Source]:
    """Return the kind of source that a configuration attends to."""
    module, _, name = KINDS[config.source].reader.partition(":")
    found: type[Source] = getattr(importlib.import_module(module), name)
    return found


def build_encoder(config: Config, size: int) -> keras.Model:
    """Build the encoder of a configuration's source: see `Source.build_encoder`."""
    return source_class(config).build_encoder(config, size)
