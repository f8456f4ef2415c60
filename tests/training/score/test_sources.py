"""The evaluation of runs about images and histories, held to loops and to scikit-learn."""

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from training import evaluate
from training.decode.labels import make_predictor
from training.decode.settings import SearchSettings
from training.decode.texts import make_attender, make_nbest
from training.sources.events import _data as events
from training.sources.image import _data as images


def test_an_image_run_is_scored_by_exact_texts_errors_and_pointing(image_run, capsys):
    evaluate.main(["--run", str(image_run.path), "--limit", "6", "--beam-width", "1"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    split = images.load("digits", "test", limit=6)
    texts = [
        found[0].text
        for found in make_nbest([image_run], SearchSettings(beam_width=1))(split.sources)
    ]
    wanted = [references[0] for references in split.references]
    exact = np.mean([text == gold for text, gold in zip(texts, wanted, strict=True)])
    assert result["exact"] == pytest.approx(100 * exact)
    hits, total = 0, 0
    attended = make_attender([image_run])(split.sources, wanted)
    for weights, boxes in zip((each.weights for each in attended), split.boxes, strict=True):
        for grid, (left, top, right, bottom) in zip(weights, boxes, strict=True):
            row, column = np.unravel_index(grid.argmax(), grid.shape)
            x, y = (column + 0.5) / grid.shape[1], (row + 0.5) / grid.shape[0]
            hits += left <= x <= right and top <= y <= bottom
            total += 1
    assert result["pointing"] == pytest.approx(100 * hits / total)


def test_an_event_run_is_scored(event_run, tmp_path, capsys):
    spec, output = event_run.config.data, tmp_path / "scores.json"
    options = ["--run", str(event_run.path), "--data", spec, "--bootstrap"]
    evaluate.main([*options, "--output", str(output)])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result == json.loads(output.read_text())
    data = events.load(spec, "all")
    said = make_predictor([event_run])(data).probabilities
    assert result["auc"] == pytest.approx(roc_auc_score(data.labels, said))
    low, high = result["auc_interval"]
    assert low <= result["auc"] <= high
    assert (result["people"], result["examples"]) == (60, len(data.labels))
