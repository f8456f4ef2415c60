"""Histories of events, declared."""

from training.sources.kind import Kind

KIND = Kind(
    name="events",
    reader="training.sources.events.source:EventSource",
    unit="examples",
    specs={"events:PATH": "a CSV of events with a TOML file beside it"},
    own="events",
)
