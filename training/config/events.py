"""Keys of histories of events as sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.config.keys import key
from training.config.recurrent import Recurrent


@dataclass(frozen=True)
class Events(Recurrent):
    """Histories, see `training.sources.events`."""

    targets: ClassVar[tuple[str, ...]] = ("label",)

    max_events: int = key(32, "events read of a history, the last ones")
