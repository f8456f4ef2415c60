"""How many shapes of batches pay on a GPU, beside the epochs that other numbers of them give."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from tests.training.conftest import tiny_config
from training.data.batches._plan import Batching, EvaluationPlan, Plan
from training.data.batches._shapes import Costs
from training.fit._optimizer import as_predicted

LONGEST = 60


def lengths_of(rng, pairs):
    source = np.clip(rng.lognormal(2.2, 0.5, pairs), 1, LONGEST).astype(np.int32)
    target = np.clip(source * rng.lognormal(0.1, 0.2, pairs), 1, LONGEST).astype(np.int32)
    return source, target


def batching(epochs, layers=2, may_be_graph=True, **options):
    settings = {"max_source_length": LONGEST, "max_target_length": LONGEST, "batch_shapes": 8}
    costs = Costs(epochs, layers, may_be_graph)
    return Batching(**{**settings, "multiple": 4, "costs": costs, **options})


def seconds_of(plan, epochs):
    """Return the time of all epochs, 20 s for each program and 0.2 ms for each position of a step.

    A program is compiled for each number of rows and pair of widths that an epoch has.
    """
    epoch = plan.epoch()
    rows = epoch.sizes // epoch.joined
    programs = {(int(n), *map(int, widths)) for n, widths in zip(rows, epoch.widths, strict=True)}
    return 20.0 * len(programs), 0.2e-3 * epochs * float(epoch.widths.sum())


@pytest.mark.parametrize(
    ("pairs", "options", "epochs", "expected"),
    [
        (10_000, {"batch_size": 256}, 20, {1}),
        (40_000, {"batch_size": 128}, 70, {2, 3}),
        (40_000, {"batch_size": 128}, 1000, {4, 5, 6, 7, 8}),
        (20_000, {"batch_size": 100, "batch_tokens": 4096}, 500, {3, 4, 5, 6}),
        (20_000, {"batch_size": 128, "concat_pairs": 0.4}, 100, {1, 2, 3, 4}),
    ],
)
def test_as_many_shapes_as_take_the_least_time(rng, pairs, options, epochs, expected):
    lengths = lengths_of(rng, pairs)
    plan = Plan(batching(epochs, **options), lengths)
    assert len(plan.shapes) in expected
    assert not (plan.shapes % 4).any()
    compiling, training = seconds_of(plan, epochs)
    given = dataclasses.replace(batching(epochs, **options), costs=None)
    others = (Plan(dataclasses.replace(given, batch_shapes=n), lengths) for n in range(1, 9))
    assert compiling + training <= 1.1 * min(sum(seconds_of(other, epochs)) for other in others)
    assert plan.predicted.training == pytest.approx(training, rel=0.05)
    assert plan.predicted.compiling == pytest.approx(compiling, rel=0.15)
    dev = EvaluationPlan(plan.batching, lengths_of(rng, 301), plan.shapes).epoch()
    assert dev.widths.min() > 0
    assert not (dev.widths % 4).any()


def with_outlier(rng, pairs):
    """Return lengths of which one pair is far longer than all others."""
    source, target = (np.clip(rng.poisson(9, pairs), 1, 50) for _ in range(2))
    source[7], target[11] = LONGEST, LONGEST - 3
    return source, target


@pytest.mark.parametrize(
    ("pairs", "options", "epochs"),
    [
        (7, {"batch_size": 64}, 1),
        (63, {"batch_size": 64}, 3),
        (10_000, {"batch_size": 64}, 50),
        (10_000, {"batch_size": 64, "batch_tokens": 1000}, 50),
        (10_000, {"batch_size": 64, "concat_pairs": 0.3}, 50),
        (1_000_000, {"batch_size": 512}, 10),  # most of them are in no sample of the lengths
    ],
)
def test_few_pairs_and_one_long_pair_are_reckoned_as_they_are_trained(rng, pairs, options, epochs):
    lengths = with_outlier(rng, max(pairs, 12)) if pairs > 100 else lengths_of(rng, pairs)
    plan = Plan(batching(epochs, may_be_graph=False, **options), lengths)
    compiling, training = seconds_of(plan, epochs)
    off_by = 20 if plan.batching.concat_pairs else 0
    assert plan.predicted.compiling == pytest.approx(compiling, abs=off_by)
    assert plan.predicted.training == pytest.approx(training, rel=0.05)
    epoch = plan.epoch()
    assert plan.shapes.tolist() == np.unique(epoch.widths, axis=0).tolist()
    batches = zip(epoch.starts, epoch.sizes, strict=True)
    sizes = np.array([(epoch.rows[start : start + size] >= 0).sum() for start, size in batches])
    padded = (sizes * epoch.widths.sum(1)).sum() / (plan.rows.size * plan.shapes[-1].sum())
    assert padded < 0.5 or pairs < 100  # the others do not get the width of the longest


def test_one_line_says_what_was_chosen_and_why():
    lengths = np.full(9_000, 10), np.full(9_000, 15)  # 4,500 steps of 28 positions
    for layers, seconds in ((2, (20, 25)), (8, (50, 63))):
        plan = Plan(batching(150, layers=layers, batch_size=300), lengths)
        assert plan.predicted.line(plan.shapes) == (
            "1 shape, 12 × 16: compiling it takes about {} s, the training then about {} s. "
            "--set batch_shapes=N has N."
        ).format(*seconds)


def test_a_short_training_is_a_graph_unless_xla_is_asked_for(rng):
    lengths = lengths_of(rng, 3_000)
    plan = Plan(batching(3, batch_size=256), lengths)  # 36 steps
    assert plan.shapes is None
    assert not plan.epoch().widths.any()
    assert plan.predicted.line(None).startswith("XLA is left out: the training takes about ")
    plain = Plan(Batching(256, LONGEST, LONGEST), lengths).epoch()
    np.testing.assert_array_equal(plan.epoch().rows, plain.rows)
    asked = Plan(batching(3, batch_size=256, may_be_graph=False), lengths)
    assert len(asked.shapes) == 1


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(
    ("settings", "compiles", "shapes", "predicted"),  # each without and with a GPU
    [
        ("epochs=2", (False, False), (0, 0), (False, True)),
        ("epochs=900", (False, True), None, (False, True)),
        ("epochs=2 jit_compile=true", (True, True), (8, 1), (False, True)),
        ("epochs=2 jit_compile=true batch_shapes=3", (True, True), (3, 3), (False, False)),
        ("epochs=900 jit_compile=false", (False, False), None, None),
    ],
)
def test_the_device_and_the_settings_decide(
    monkeypatch, rng, gpu, settings, compiles, shapes, predicted
):
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu" if gpu else "cpu")
    sizes = "max_source_length=60", "max_target_length=60", *settings.split()
    config = tiny_config(*sizes)
    plan = Plan(Batching.of(config), lengths_of(rng, 3_000))
    assert as_predicted(config, SimpleNamespace(plan=plan)).compiles() == compiles[gpu]
    assert shapes is None or (0 if plan.shapes is None else len(plan.shapes)) == shapes[gpu]
    assert predicted is None or (plan.predicted is not None) == predicted[gpu]
    assert not gpu or plan.shapes is None or not (plan.shapes % 4).any()


def test_batches_have_the_settings_of_the_configuration():
    """Each key is read by its name; a key of another name raises an error."""
    values = {"batch_size": 31, "max_source_length": 37, "max_target_length": 41, "seed": 43}
    values |= {"batch_shapes": 3, "concat_pairs": 0.25, "batch_tokens": 0}
    config = tiny_config("jit_compile=false", *(f"{key}={value}" for key, value in values.items()))
    assert Batching.of(config) == Batching(**values)
    other = {"concat_pairs": 0.0, "batch_tokens": 1009}
    assert Batching.of(dataclasses.replace(config, **other)) == Batching(**{**values, **other})
    for key in values:
        others = {name: getattr(config, name) for name in dir(config) if name != key}
        with pytest.raises(AttributeError, match=key):
            Batching.of(SimpleNamespace(**others))
