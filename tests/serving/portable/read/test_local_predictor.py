"""A model of histories in this process against the SavedModel that it was exported from."""

import json

import numpy as np
import pytest
import tensorflow as tf

from serving.check._onnx import check_folder
from serving.client import _predict as predict
from serving.export._modules import ExportedPredictor
from serving.export._version import export
from serving.portable.read import LocalPredictor
from training.config.schema import override
from training.model.seq2seq import build_model
from training.runs.run import Run
from training.sources.events.source import EventSource


def other(run, *settings):
    """A run of the same source with other settings and random weights."""
    config = override(run.config, [*settings])
    model = build_model(config, run.source.size)
    rng = np.random.default_rng(1)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(0, 0.6, weight.shape))
    source = EventSource(run.source.schema, config.max_events)
    return Run(run.path, config, source, None, model)


def histories(run, rng):
    """Columns `(B, T)`: numbers and events are missing anywhere, and one history has none."""
    columns = {name: rng.normal(2, 3, (7, 11)).astype("float32") for name in run.source.inputs()}
    for name, values in columns.items():
        values[rng.random(values.shape) < 0.3] = np.nan
        if name != "time":
            values[rng.random(values.shape) < 0.1] = 1e29
    columns["bili"] = abs(columns["bili"])  # of its logarithm
    columns["time"][:] = np.sort(columns["time"], axis=1)  # what is missing comes last
    columns["time"][3] = np.nan
    return columns


def stacked(run, columns):
    return np.stack([columns[name] for name in run.source.inputs()], axis=2)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["encoder=lstm", "bidirectional=true", "encoder_layers=2", "distribution=sparsemax"],
        ["attention=none", "encoder=gru"],
        ["max_events=3"],
    ],
)
def test_probabilities_and_weights_are_those_of_the_saved_model(settings, event_run, tmp_path, rng):
    runs = [other(event_run, *settings)]
    if not settings:
        runs.append(event_run)  # an ensemble
    columns = histories(event_run, rng)
    module = ExportedPredictor(runs)
    folder = export(runs, tmp_path / "model", form="onnx")
    predictor = LocalPredictor(folder, batch_size=3, threads=2)

    def assert_alike(answers, lengths):
        wanted = module.predict(**{name: tf.constant(x) for name, x in columns.items()})
        said = [answer.probability for answer in answers]
        assert np.isfinite(said).all()
        np.testing.assert_allclose(said, wanted["probability"], atol=1e-5)
        assert [answer.truncated for answer in answers] == wanted["truncated"].numpy().tolist()
        for row, (answer, length) in enumerate(zip(answers, lengths, strict=True)):
            if "attention_weights" in wanted:
                weights = wanted["attention_weights"][row, :length]
                np.testing.assert_allclose(answer.attention_weights, weights, atol=1e-5)

    lengths = (~np.isnan(columns["time"])).sum(axis=1)
    given = [
        {name: x[row, :length].tolist() for name, x in columns.items()}
        for row, length in enumerate(lengths)
    ]
    assert_alike(predictor.outcome(given), lengths)
    assert predictor.outcome([]) == []
    # As they are, for a server: events are where there is a time, and may go back.
    columns["time"] = columns["time"][:, ::-1].copy()
    columns["bili"][5, :2] = np.inf
    columns["time"][6] = [*[-np.inf, np.nan, np.inf], *[2] * 8]
    assert_alike(predictor.predict(stacked(runs[0], columns)), [11] * 7)
    columns["bili"][2, 5] = -3
    with pytest.raises(ValueError, match="bili needs a number, 0 to"):
        predictor.predict(stacked(runs[0], columns))


def test_eight_bits_are_close_and_no_history_depends_on_others(event_run, tmp_path, rng):
    run = other(event_run, "encoder_units=13", "encoder=lstm", "bidirectional=true")
    columns = histories(run, rng)
    events = stacked(run, columns)
    plain, rounded = (
        LocalPredictor(export([run], tmp_path / weights, form="onnx", weights=weights))
        for weights in ("float32", "int8")
    )
    wanted = plain._folder.run("predictor", {"events": events})
    found = rounded._folder.run("predictor", {"events": events})
    for name, values in found.items():
        assert 1e-6 < np.abs(values - wanted[name]).max() < 0.05
        alone = [rounded._folder.run("predictor", {"events": x[None]})[name][0] for x in events]
        np.testing.assert_allclose(values, alone, atol=1e-6)
    agreement = rounded.manifest["agreement"]
    assert agreement["histories"] > 9
    assert 0 < agreement["probability_difference"] < 0.05
    assert check_folder(rounded._folder.path, run.path) != []  # of other weights


def test_the_command_predicts_without_a_server(event_run, onnx_predictor, capsys):
    table = event_run.config.data.removeprefix("events:")
    words = [table, "--local", str(onnx_predictor), "--id", "patient", "--json", "--time", "day"]
    assert predict.main([*words, "--only", "p2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["id"] == "p2"
    assert 0 < answer["probability"] < 1
