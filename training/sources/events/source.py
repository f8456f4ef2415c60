"""Histories as sources: events with times, read by a recurrent encoder."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from training.command.files import read_json, write_json
from training.command.progress import print_choice, print_note
from training.config.schema import Config
from training.data.read._sentences import digest_of
from training.data.rules import MOST_NUMBER
from training.data.tokens.store import Sequences
from training.sources._source import Source, encoded, read_sequence
from training.sources.events import _data as events
from training.sources.events._histories import Histories, Schema

Tensor = Any
SMALLEST = 1e-6  # logarithms are taken of at least this number
_PEOPLE = 3  # histories of so many people are shown
OUTLYING = 0.001  # share of numbers at either end that are clipped


def statistics_of(data: Histories) -> dict[str, np.ndarray]:
    """Return the weights of `EventFeatures`, computed from the events of all examples.

    For each input, after the logarithm if any, one number in a thousand lies below `lowest` and one
    above `highest`. Numbers are clipped to this range, because a typing error, such as a pressure
    of 13,682, would make all other numbers look equal.

    Returns:
        "lowest", "highest", "mean", "deviation" and "log", `(inputs,)` each, and "time" `(3,)`: see
        `EventFeatures`.
    """
    spans = zip(data.starts, data.ends, strict=True)
    rows = np.unique(np.concatenate([np.arange(*span) for span in spans]))
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
    """Return the last events of each history, at most `most`, with the last known numbers.

    An event is float32 `(1 + 2 * inputs,)`: its time; its numbers, NaN if missing; and the last
    known numbers up to the event, see `Histories.last_known`. Padding is NaN.
    """
    values = np.column_stack([data.times, data.values, data.last_known()]).astype(np.float32)
    lengths = np.minimum(data.ends - data.starts, most)
    return Sequences(values, data.ends - lengths, lengths.astype(np.int32), np.nan)


def print_histories(config: Config, data: Histories) -> None:
    """Print facts about the training histories, above the choices of the run."""
    ids, share = len(np.unique(data.people)), data.labels.mean()
    print_note(
        f"{config.data}: {len(data.labels):,} examples of {ids:,} ids, {share:.0%} came true"
    )
    columns, way_out = data.schema.columns, "of the TOML file" * config.data.startswith("events:")
    numbers = ", ".join(name for name, categories in columns.items() if categories is None)
    shown = (
        f"{name} ({', '.join(each[:9])}{', …' * (len(each) > 9)})"
        for name, each in columns.items()
        if each
    )
    print_choice("numbers", numbers or "none", way_out and f"columns {way_out}")
    print_choice("categories", ", ".join(shown) or "none", way_out and f"categories {way_out}")
    lengths, most = data.ends - data.starts, config.max_events
    longer = np.count_nonzero(lengths > most)
    read = f"of {longer:,} the last {most:,} are read" if longer else "all are read"
    told = f"{lengths.min():,} to {lengths.max():,} in a history; {read}"
    print_choice("events", told, "--set max_events=N")


class EventSource(Source):
    """Histories of events: times and columns of numbers; the last `most` events are read."""

    files = ("source.events",)

    def __init__(self, schema: Schema, most: int, data: Histories | None = None) -> None:
        self.schema, self.most, self._data = schema, most, data
        self.size = len(schema.inputs())

    @classmethod
    def load_training(cls, config: Config, source: Any = None) -> tuple[Histories, Histories]:
        """Read histories with outcomes: see `training.sources.events._data`."""
        schema = None if source is None else source.schema
        return events.load_training(config.data, config.train_limit, config.seed, schema)

    def load_split(
        self, config: Config, spec: str, split: str, limit: int | None = None
    ) -> Histories:
        """Read histories with the same columns."""
        return events.load(spec, split, schema=self.schema, limit=limit)

    @classmethod
    def make(cls, config: Config, data: Histories) -> EventSource:
        """Return the source for the columns of `data`; `begin` gives a model their statistics.

        Prints the columns and the lengths of the histories.
        """
        print_histories(config, data)
        return cls(data.schema, config.max_events, data)

    @classmethod
    def fingerprint(cls, train: Histories, dev: Histories) -> str:
        """Return the SHA-256 of all events and labels."""
        digest = hashlib.sha256()
        for part in (train, dev):
            for array in (part.times, part.values, part.starts, part.ends, part.labels):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def digests(self, data: Histories) -> np.ndarray:
        """Return a number for the times and values of each history, uint64 `(n,)`."""
        histories = (slice(*ends) for ends in zip(data.starts, data.ends, strict=True))
        contents = (data.times[x].tobytes() + data.values[x].tobytes() for x in histories)
        return np.array([digest_of(content) for content in contents], np.uint64)

    @classmethod
    def load(cls, config: Config, folder: Path) -> EventSource:
        """Load the columns; the statistics are weights of the model, not of the source."""
        return cls(Schema(**read_json(folder / cls.files[0])), config.max_events)

    def save(self, folder: Path) -> None:
        """Write the columns as JSON."""
        write_json(folder / self.files[0], vars(self.schema))

    def begin(self, model: keras.Model) -> None:
        """Set the model's statistics to the statistics of the data that made the source."""
        if self._data is not None:
            model.get_layer("encoder").get_layer("features").adapt(self._data)

    def inputs(self) -> dict[str, tuple[tuple[int | None, ...], str]]:
        """Return the inputs of an export: `time` and each input, float32 `(B, T)`."""
        return dict.fromkeys(("time", *self.schema.inputs()), ((None, None), "float32"))

    def examples(self, count: int) -> dict[str, Any]:
        """Return `count` histories of 8 events; a single history has one event."""
        times = np.arange(1 if count == 1 else 8, dtype="float32")
        return dict.fromkeys(self.inputs(), np.tile(times, (count, 1)))

    def shown(self, config: Config, count: int) -> list[str]:
        """Return one CSV table of whole histories, with the input names of the served model.

        The list is empty for the user's own tables: only published data are shown.
        """
        if ":" in config.data:
            return []
        histories = self.load_split(config, config.data, "dev")
        last = {person: n for n, person in enumerate(histories.people)}
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["id", "time", *histories.schema.inputs()])
        for person, n in list(last.items())[:_PEOPLE]:
            for event in range(histories.starts[n], histories.ends[n]):
                values = (f"{v:g}" if np.isfinite(v) else "" for v in histories.values[event])
                rows.writerow([person, f"{histories.times[event]:g}", *values])
        return [file.getvalue()]

    def read(self, **columns: Tensor) -> Tensor:
        """Return the events that a model reads from columns: see `window`."""
        return self.window(**columns)[0]

    def window(self, **columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the last events of columns, as `last_events` does, in TensorFlow's graph.

        Memory is linear in T.

        Args:
            **columns: `time` and each of `schema.inputs()`, float `(B, T)`, NaN if missing. Without
                a time there is no event.

        Returns:
            Events float32 `(B, min(T, most), 1 + 2 * inputs)`, their positions in the columns,
            int32 `(B, min(T, most))`, and whether a history has more events, boolean `(B,)`.

        Raises InvalidArgumentError with the name of the column for a number below 0 whose logarithm
        is taken.
        """
        import tensorflow as tf

        names = list(self.inputs())
        events = tf.stack([tf.ensure_shape(columns[name], [None, None]) for name in names], axis=-1)
        there = ~tf.math.is_nan(events[:, :, 0])
        below = tf.where((events < 0) & np.array([False, *self.schema.logged()]))[:1]
        words = [tf.gather(names, below[:, 2]), "needs a number, 0 to 1e30, but it is"]
        words += [tf.strings.as_string(tf.gather_nd(events, below), shortest=True)]
        right = tf.debugging.Assert(tf.size(below) == 0, [tf.strings.join(words, " ")])
        with tf.control_dependencies([right]):
            values = tf.transpose(events[:, :, 1:], [0, 2, 1])  # (B, inputs, T)
        # Put all known numbers into one vector, after a NaN at index 0. `place`, (B, inputs, T), is
        # the index of the last known number up to each event; 0 if none is known yet.
        seen = ~tf.math.is_nan(values) & there[:, None]
        count = tf.cast(seen, tf.int32)
        place = tf.reshape(tf.cumsum(tf.reshape(count, [-1])), tf.shape(count))
        place = tf.where(tf.cumsum(count, axis=2) > 0, place, 0)
        known = tf.gather(tf.concat([[np.nan], tf.boolean_mask(values, seen)], 0), place)
        events = tf.concat([events, tf.transpose(known, [0, 2, 1])], axis=-1)
        number = tf.reduce_sum(tf.cast(there, tf.int32), axis=1)
        steps = tf.range(tf.minimum(tf.shape(events)[1], self.most))
        # Positions of the real events first, in order: (B, T).
        order = tf.argsort(tf.cast(~there, tf.int32), axis=1, stable=True)
        first = tf.maximum(number - self.most, 0)[:, None]
        places = tf.gather(order, first + steps, axis=1, batch_dims=1)
        return tf.gather(events, places, axis=1, batch_dims=1), places, number > self.most

    def rows(self, raw: Histories, training: bool = False) -> Sequences:  # type: ignore[override]
        """Return the last events of each history: see `last_events`."""
        return last_events(raw, self.most)

    def tell_cut(self, data: Histories) -> None:
        """Print how many histories have more events than the model reads."""
        if cut := np.count_nonzero(data.ends - data.starts > self.most):
            print(
                f"{cut:,} of {len(data.labels):,} histories have more than {self.most} events. The "
                "model reads only the last of them, with the values known before. To read more: "
                "--set max_events=N"
            )

    @staticmethod
    def build_encoder(config: Config, size: int) -> keras.Model:
        """Build the encoder from events `(B, T, 1 + 2 * size)` to the outputs of `encoded`."""
        source = keras.Input((None, 1 + 2 * size), dtype="float32", name="source")
        mask = ops.logical_not(ops.isnan(source[:, :, 0]))
        x = EventFeatures(dtype="float32", name="features")(source)
        x = keras.layers.Dropout(config.dropout)(x)
        x = keras.layers.Dense(config.encoder_units, activation="tanh", name="event")(x)
        x, summary = read_sequence(config, x, mask, config.dropout)
        return keras.Model(source, encoded(config, x, mask, summary), name="encoder")


class EventFeatures(keras.layers.Layer):
    """Features `(B, T, 3 * inputs + 3)` of events `(B, T, 1 + 2 * inputs)`: see `last_events`.

    The features of an event are, in this order:

    - for each input, the last known number up to the event, standardised; 0 if none is known yet;
    - for each input, 1 if a number is known yet, else 0;
    - for each input, 1 if the number is missing at this event, else 0;
    - the time, standardised;
    - `log(1 + gap)` of the time since the previous event that is read, in mean gaps;
    - `log(1 + gap)` of the time until the last event, in mean gaps.

    The flags ensure that no number is filled in silently. Padding has the time NaN and features 0.

    Weights, which are not trained: `lowest`, `highest`, `mean`, `deviation` and `log`, `(inputs,)`
    each, and `time` `(3,)`: the mean and the deviation of times, and the mean gap.
    """

    def build(self, events_shape: tuple) -> None:
        """Make the weights, with neutral values."""
        size = events_shape[-1] // 2

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
        """Return the features of events: see the class."""
        size = self.lowest.shape[0]
        # (B, T, 1), (B, T, inputs) and (B, T, inputs)
        times, values, known = ops.split(events, [1, 1 + size], axis=2)
        times = times[:, :, 0]
        present = ops.logical_not(ops.isnan(times))
        any_before = ops.logical_not(ops.isnan(known))
        numbers = ops.where(any_before, known, 1.0)
        numbers = ops.where(self.log > 0.5, ops.log(ops.maximum(numbers, SMALLEST)), numbers)
        numbers = ops.clip(numbers, self.lowest, self.highest)
        numbers = ops.where(any_before, (numbers - self.mean) / self.deviation, 0.0)
        times = ops.where(present, ops.clip(times, -MOST_NUMBER, MOST_NUMBER), 0.0)
        since = times - ops.concatenate([times[:, :1], times[:, :-1]], axis=1)
        lowest = ops.min(times, axis=1, keepdims=True)
        last = ops.max(ops.where(present, times, lowest), axis=1, keepdims=True)
        of_time = [
            (times - self.time[0]) / self.time[1],
            ops.log1p(ops.maximum(since, 0.0) / self.time[2]),
            ops.log1p(ops.maximum(last - times, 0.0) / self.time[2]),
        ]
        flags = [ops.cast(flag, "float32") for flag in (any_before, ops.isnan(values))]
        features = ops.concatenate([numbers, *flags, ops.stack(of_time, axis=-1)], axis=-1)
        features = ops.where(ops.expand_dims(present, -1), features, 0.0)
        return ops.cast(features, self.compute_dtype)
