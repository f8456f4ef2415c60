"""Histories as sources: events with times, read by a recurrent encoder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from training.command.files import read_json, write_json
from training.config.schema import Config
from training.data.store import Sequences
from training.sources.events import data as events
from training.sources.events.histories import Histories, Schema
from training.sources.source import Source, encoded, read_sequence

Tensor = Any
SMALLEST = 1e-6  # what logarithms are taken of, at least
OUTLYING = 0.001  # share of numbers at either end that are taken as the next less extreme one


def statistics_of(data: Histories) -> dict[str, np.ndarray]:
    """Return the weights of `EventFeatures` for the events in the histories of some examples.

    Of each number one in a thousand lies below `lowest`, one above `highest`, after its logarithm
    if any: a pressure of 13,682 is a slip of the pen, beside which all others would be alike.
    """
    rows = np.unique(
        np.concatenate([np.arange(*ends) for ends in zip(data.starts, data.ends, strict=True)])
    )
    log, times, values = data.schema.logged(), data.times[rows], data.values[rows].astype("float64")
    values = np.where(log, np.log(np.maximum(values, SMALLEST)), values)
    values[:, np.isnan(values).all(axis=0)] = 0.0
    lowest, highest = np.nanquantile(values, (OUTLYING, 1 - OUTLYING), axis=0)
    values = np.clip(values, lowest, highest)
    deviation = np.nanstd(values, axis=0)
    later = rows[~np.isin(rows, data.starts)]
    gap = (data.times[later] - data.times[later - 1]).mean() if later.size else 0.0
    return {
        "lowest": lowest,
        "highest": highest,
        "mean": np.nanmean(values, axis=0),
        "deviation": np.where(deviation > 1e-6, deviation, 1.0),
        "log": log.astype(float),
        "time": np.array([times.mean(), times.std() or 1.0, gap if gap > 0 else 1.0]),
    }


def last_events(data: Histories, most: int) -> Sequences:
    """Return the last events of each history, so many at most.

    An event is float32 `(1 + inputs,)`: its time, and its numbers as they came, NaN where missing.
    Past the end of a history all is NaN.
    """
    values = np.column_stack([data.times, data.values]).astype(np.float32)
    lengths = np.minimum(data.ends - data.starts, most)
    return Sequences(values, data.ends - lengths, lengths.astype(np.int32), np.nan)


class EventSource(Source):
    """Tables of events: numbers in columns, with times, of which the last `most` are read."""

    files = ("source.events",)

    def __init__(self, schema: Schema, most: int, data: Histories | None = None) -> None:
        self.schema, self.most, self._data = schema, most, data
        self.size = len(schema.inputs())

    @classmethod
    def load_training(cls, config: Config, source: Any = None) -> tuple[Histories, Histories]:
        """Read histories with outcomes: see `training.sources.events.data`."""
        schema = None if source is None else source.schema
        return events.load_training(config.data, config.train_limit, config.seed, schema)

    def load_split(
        self, config: Config, spec: str, split: str, *, limit: int | None = None, seed: int = 0
    ) -> Histories:
        """Read histories of the same columns."""
        return events.load(spec, split, schema=self.schema, limit=limit, seed=seed)

    @classmethod
    def make(cls, config: Config, data: Histories) -> EventSource:
        """Return the source of the columns of these histories, whose statistics a model gets."""
        return cls(data.schema, config.max_events, data)

    @classmethod
    def fingerprint(cls, train: Histories, dev: Histories) -> str:
        """Hash all events and labels."""
        digest = hashlib.sha256()
        for part in (train, dev):
            for array in (part.times, part.values, part.starts, part.ends, part.labels):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @classmethod
    def load(cls, config: Config, folder: Path) -> EventSource:
        """Load the columns; the statistics are weights of the model."""
        return cls(Schema(**read_json(folder / cls.files[0])), config.max_events)

    def save(self, folder: Path) -> None:
        """Write the columns as JSON."""
        write_json(folder / self.files[0], vars(self.schema))

    def begin(self, model: keras.Model) -> None:
        """Give the model the statistics of the data that the source was made of."""
        if self._data is not None:
            model.get_layer("encoder").get_layer("features").adapt(self._data)

    def inputs(self) -> dict[str, tuple[tuple[int | None, ...], str]]:
        """Return what an export reads: times and columns."""
        return dict.fromkeys(("time", *self.schema.inputs()), ((None, None), "float32"))

    def examples(self, count: int) -> dict[str, Any]:
        """Return histories of several events; a single one has one event."""
        times = np.arange(1 if count == 1 else 8, dtype="float32")
        return dict.fromkeys(self.inputs(), np.tile(times, (count, 1)))

    def read(self, **columns: Tensor) -> Tensor:
        """Join columns to a batch float32 `(B, T, 1 + inputs)`, in TensorFlow's graph.

        Columns are `time` and each of `schema.inputs()`, float `(B, T)`, NaN where missing; there
        is no event where the time is missing.
        """
        import tensorflow as tf

        numbers = [tf.ensure_shape(columns[name], [None, None]) for name in self.inputs()]
        return tf.stack(numbers, axis=-1)

    def rows(self, raw: Histories, training: bool = False) -> Sequences:  # type: ignore[override]
        """Return the last events of each history: see `last_events`."""
        return last_events(raw, self.most)

    @staticmethod
    def build_encoder(config: Config, size: int) -> keras.Model:
        """Build the encoder: from histories `(B, T, 1 + size)` to what `encoded` returns."""
        source = keras.Input((None, 1 + size), dtype="float32", name="source")
        mask = ops.logical_not(ops.isnan(source[:, :, 0]))
        x = EventFeatures(dtype="float32", name="features")(source)
        x = keras.layers.Dropout(config.dropout)(x)
        x = keras.layers.Dense(config.encoder_units, activation="tanh", name="event")(x)
        x, summary = read_sequence(config, x, mask, config.dropout)
        return keras.Model(source, encoded(config, x, mask, summary), name="encoder")


class EventFeatures(keras.layers.Layer):
    """Features `(B, T, 3 * inputs + 3)` of times and numbers of events, `(B, T, 1 + inputs)`.

    For each input the last known number up to each event, standardised, 0 where none is known yet;
    whether one is known yet, and whether it is missing at this event, so that nothing is filled in
    silently. Then the time, standardised, and the logarithms of one plus the time since the event
    before and the time up to the last event, in mean gaps. Times are NaN past the end of a history.

    Weights, which are not trained: `lowest`, `highest`, `mean`, `deviation` and `log` of each
    input, and `time`: mean and deviation of times, and the mean gap.
    """

    def build(self, events_shape: tuple) -> None:
        """Make the weights."""
        size = events_shape[-1] - 1

        def statistic(name: str, shape: tuple, initializer: str) -> Any:
            return self.add_weight(shape, initializer, dtype="float32", trainable=False, name=name)

        self.lowest = statistic("lowest", (size,), "zeros")
        self.highest = statistic("highest", (size,), "zeros")
        self.mean = statistic("mean", (size,), "zeros")
        self.deviation = statistic("deviation", (size,), "ones")
        self.log = statistic("log", (size,), "zeros")
        self.time = statistic("time", (3,), "ones")

    def adapt(self, data: Histories) -> None:
        """Set the weights to the statistics of histories: see `statistics_of`."""
        for name, value in statistics_of(data).items():
            getattr(self, name).assign(value)

    def call(self, events: Tensor) -> Tensor:
        """Make the features."""
        times, values = events[:, :, 0], events[:, :, 1:]
        present = ops.logical_not(ops.isnan(times))
        seen = ops.logical_not(ops.isnan(values))
        numbers = ops.where(seen, values, 1.0)
        numbers = ops.where(self.log > 0.5, ops.log(ops.maximum(numbers, SMALLEST)), numbers)
        numbers = ops.clip(numbers, self.lowest, self.highest)
        numbers = ops.where(seen, (numbers - self.mean) / self.deviation, 0.0)
        numbers, any_before = _last_known(numbers, seen)
        times = ops.where(present, times, 0.0)
        since = times - ops.concatenate([times[:, :1], times[:, :-1]], axis=1)
        lowest = ops.min(times, axis=1, keepdims=True)
        last = ops.max(ops.where(present, times, lowest), axis=1, keepdims=True)
        of_time = [
            (times - self.time[0]) / self.time[1],
            ops.log1p(ops.maximum(since, 0.0) / self.time[2]),
            ops.log1p(ops.maximum(last - times, 0.0) / self.time[2]),
        ]
        flags = [ops.cast(flag, "float32") for flag in (any_before, ops.logical_not(seen))]
        features = ops.concatenate([numbers, *flags, ops.stack(of_time, axis=-1)], axis=-1)
        features = ops.where(ops.expand_dims(present, -1), features, 0.0)
        return ops.cast(features, self.compute_dtype)

    def compute_output_shape(self, events_shape: tuple) -> tuple:
        """Return the shape of the features."""
        return (*events_shape[:-1], 3 * events_shape[-1])


def _last_known(values: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last of values `(B, T, F)` seen up to each event, and whether there is one."""
    steps = ops.arange(ops.shape(values)[1], dtype="int32")
    index = ops.where(seen, steps[:, None], -1)  # (B, S, F)
    before = steps[:, None] >= steps  # (T, S)
    last = ops.max(ops.where(before[..., None], index[:, None], -1), axis=2)  # (B, T, F)
    numbers = ops.take_along_axis(values, ops.maximum(last, 0), axis=1)
    any_before = last >= 0
    return ops.where(any_before, numbers, 0.0), any_before
