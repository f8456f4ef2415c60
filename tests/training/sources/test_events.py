import math

import numpy as np
import pytest
import tensorflow as tf

from training.config.schema import Config
from training.model.seq2seq import build_model
from training.sources.events._histories import Histories, Schema
from training.sources.events.source import EventFeatures, EventSource, last_events, statistics_of

NAN = math.nan


def random_histories(count=7, inputs=3, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, count)
    total = int(lengths.sum())
    values = np.exp(rng.normal(size=(total, inputs))).astype("float32")
    values[rng.random(values.shape) < 0.4] = NAN
    ends = np.cumsum(lengths)
    times = np.concatenate([np.cumsum(rng.integers(0, 9, n)) for n in lengths]).astype(float)
    schema = Schema({f"c{n}": None for n in range(inputs)}, ["c1"])
    labels = (np.arange(count) % 2).astype("float32")
    people = np.arange(count).astype(str)
    return Histories(schema, times, values, ends - lengths, ends, labels, people)


def plain_features(times, values, statistics):
    """The features of one history, event by event."""
    size, names = values.shape[1], ("log", "lowest", "highest", "mean", "deviation")
    of_columns = [statistics[name] for name in names]
    known, ever, rows = [0.0] * size, [0.0] * size, []
    for step, (time, row) in enumerate(zip(times, values, strict=True)):
        for column, value in enumerate(row):
            if not np.isnan(value):
                log, lowest, highest, mean, deviation = (each[column] for each in of_columns)
                number = min(max(math.log(value) if log else value, lowest), highest)
                ever[column], known[column] = 1.0, (number - mean) / deviation
        since, until = time - times[step - 1] if step else 0.0, times[-1] - time
        mean, deviation, unit = statistics["time"]
        of_time = (time - mean) / deviation, math.log1p(since / unit), math.log1p(until / unit)
        rows.append([*known, *ever, *np.isnan(row).astype(float), *of_time])
    return np.array(rows)


def features(data, most):
    """What a layer makes of the last events of all histories."""
    layer, count = EventFeatures(), len(data.labels)
    batch = last_events(data, most).select(np.arange(count)[:, None], most).padded()
    layer.build(batch.shape)
    layer.adapt(data)
    return layer(batch).numpy()


def test_statistics_are_those_of_known_numbers_in_the_examples():
    data = random_histories()
    part = data.select([1, 4])
    rows = np.concatenate([np.arange(data.starts[i], data.ends[i]) for i in (1, 4)])
    numbers = data.values[rows].astype("float64")
    numbers[:, 1] = np.log(numbers[:, 1])
    found = statistics_of(part)
    lowest, highest = np.nanquantile(numbers, (0.001, 0.999), axis=0)
    np.testing.assert_allclose(found["lowest"], lowest, atol=1e-6)
    np.testing.assert_allclose(found["highest"], highest, atol=1e-6)
    numbers = np.clip(numbers, lowest, highest)
    wanted = np.nanmean(numbers, axis=0)
    np.testing.assert_allclose(found["mean"], wanted, atol=1e-6)
    assert found["log"].tolist() == [0.0, 1.0, 0.0]
    assert found["time"][0] == pytest.approx(data.times[rows].mean())


def test_what_is_known_of_a_yes_is_told_from_what_is_not():
    """A column of ones, such as a diagnosis, has a mean of 1: its number says nothing."""
    values, ends = np.array([[1.0], [NAN], [NAN], [NAN]], "float32"), np.array([2, 4])
    about = Schema({"ill": None}), np.arange(4.0), values, ends - 2, ends
    data = Histories(*about, np.zeros(2, "float32"), np.array(["a", "b"]))
    # The number, whether it is known yet, whether it is missing at this event.
    assert features(data, 4)[:, 1, :3].tolist() == [[0, 1, 1], [0, 0, 1]]


def test_one_outlier_does_not_make_the_others_alike():
    data = random_histories(count=2003, inputs=2)
    plain = statistics_of(data)
    column = data.values[:, 0]
    column[np.flatnonzero(~np.isnan(column))[5]] = 1e6
    found = statistics_of(data)
    np.testing.assert_allclose(found["mean"], plain["mean"], rtol=0.05)
    np.testing.assert_allclose(found["deviation"], plain["deviation"], rtol=0.05)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 16])
def test_features_are_those_of_a_loop_over_events_with_what_was_known_before_the_last(most):
    data = random_histories()
    statistics, found = statistics_of(data), features(data, most)
    for row, (start, end) in enumerate(zip(data.starts, data.ends, strict=True)):
        wanted = plain_features(data.times[start:end], data.values[start:end], statistics)[-most:]
        wanted[0, -2] = 0.0  # the time since an event that is not read
        np.testing.assert_allclose(found[row, : len(wanted)], wanted, atol=2e-5)
        assert not found[row, len(wanted) :].any()


@pytest.mark.parametrize("most", [2, 3, 16])
def test_an_export_reads_the_events_that_training_reads(most):
    data = random_histories(count=13)
    source = EventSource(data.schema, most)
    wanted = last_events(data, most).select(np.arange(13)[:, None], most).padded()
    columns = {name: np.full((13, 9), NAN, "float32") for name in source.inputs()}
    for row in range(13):
        values = data.inputs(row)
        # Rows without a time are no events, wherever they are, and nothing of them is known.
        places = np.sort(np.random.default_rng(row).permutation(9)[: len(values["time"])])
        for name, column in columns.items():
            column[row] = NAN if name == "time" else 7.0
            column[row, places] = values[name]
    events, places, truncated = source.window(**columns)
    size = wanted.shape[1]
    np.testing.assert_array_equal(np.isnan(events[:, :, 0])[:, size:], True)
    there = ~np.isnan(wanted[:, :, 0])
    np.testing.assert_allclose(events.numpy()[:, :size][there], wanted[there])
    np.testing.assert_allclose(
        np.take_along_axis(columns["time"], places.numpy(), 1)[:, :size][there], wanted[there][:, 0]
    )
    assert truncated.numpy().tolist() == (data.ends - data.starts > most).tolist()


def test_an_export_refuses_a_number_whose_logarithm_is_not_there():
    source = EventSource(random_histories().schema, 4)
    columns = {name: np.ones((3, 5), "float32") for name in source.inputs()}
    columns["c0"][0, 1] = -1.0
    source.window(**columns)
    columns["c1"][2, 3] = -0.25
    said = r"c1 needs a number, 0 to 1e30, but it is -0.25"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        source.window(**columns)


def test_memory_of_a_long_history_is_linear():
    """The largest tensors of the graph grow with the events, not with their square."""
    source = EventSource(random_histories().schema, 4)
    spec = {name: tf.TensorSpec([1, 4096], tf.float32) for name in source.inputs()}
    made = tf.function(source.window).get_concrete_function(**spec)
    sizes = [x.shape.num_elements() or 0 for op in made.graph.get_operations() for x in op.outputs]
    assert max(sizes) <= 4096 * (1 + 2 * 3)


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_padding_does_not_change_what_is_said(attention):
    settings = {"encoder_units": 5, "attention_units": 3, "attention": attention}
    config = Config(source="events", bidirectional=False, **settings)
    data = random_histories()
    model = build_model(config, 3)
    EventSource.make(config, data).begin(model)
    rows = last_events(data, 16)
    together = model({"source": rows.select(np.arange(7)[:, None], 16).padded()}).numpy()
    for row in range(7):
        alone = model({"source": rows.select(np.array([[row]]), 16).padded()}).numpy()
        np.testing.assert_allclose(alone[0], together[row], atol=1e-5)
    assert np.ptp(together) > 0
