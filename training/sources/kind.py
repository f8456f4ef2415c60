"""A source's declaration: without Keras, so that a command's help does not wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    Attributes:
        name: the configuration's key `source`; its own keys are in `training.config`.
        reader: module and name of its class, see `training.sources.source.Source`.
        unit: what its examples are called, in the plural.
        specs: the forms of SPECs that name its data, such as "images:PATH", each with its meaning.
        own: the settings for own data, a file of `training/presets/own`; "" where the number of
            pairs decides.
        tokens: whether it is read as tokens, which are kept in the run, prepared for other
            backends, linked to a target's words and shown in heat-maps.
    """

    name: str
    reader: str
    unit: str
    specs: Mapping[str, str]
    own: str = ""
    tokens: bool = False

    @property
    def forms(self) -> list[str]:
        """The beginnings of SPECs that name its files."""
        return [spec.partition(":")[0] for spec in self.specs if ":" in spec]
