"""What runs about images and histories are scored by, and when data were learned from."""

import dataclasses
import json
import random

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.training.conftest import tiny_config, untrained
from tests.training.data.files import write
from tests.training.sources.test_events import random_histories
from training import evaluate
from training.command.errors import UserError
from training.config.schema import Config, override
from training.data.read import texts as corpus
from training.decode.labels import Prediction, make_predictor
from training.decode.settings import SearchSettings
from training.decode.texts import make_attender, make_nbest
from training.metrics import auc
from training.runs.run import load_run
from training.score import _evaluation as evaluation
from training.score import _labels as scores
from training.score._labels import evaluate_labels
from training.score._overlap import learned_sources, warning
from training.sources.events import _data as events
from training.sources.events.source import EventSource
from training.sources.image import _data as images
from training.sources.image._digits import make


def test_auc_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    labels = (rng.random(53) < 0.3).astype(float)
    values = rng.integers(0, 9, 53) + labels
    above = values[labels == 1][:, None] - values[labels == 0]
    assert auc(labels, values) == pytest.approx(np.mean((above > 0) + 0.5 * (above == 0)))
    assert auc(np.ones(3), np.arange(3)) == 0.5


def test_cross_entropy_of_certain_and_of_even_chances():
    labels = np.array([0.0, 1.0])
    assert scores.cross_entropy(labels, np.array([0.5, 0.5])) == pytest.approx(np.log(2))
    assert scores.cross_entropy(labels, labels) < 1e-6


def test_calibration_is_perfect_where_as_much_comes_true_as_is_said():
    rng = np.random.default_rng(1)
    said = rng.random(20_000)
    labels = (rng.random(20_000) < said).astype(float)
    assert scores.calibration_error(labels, said) < 0.02
    assert scores.calibration_error(labels, said * 0) == pytest.approx(labels.mean(), abs=1e-6)


def test_people_are_resampled_whole_and_samples_are_paired():
    rng = np.random.default_rng(2)
    people = np.repeat(np.arange(40), 5)
    labels = np.repeat((np.arange(40) % 2).astype(float), 5)  # all of one person alike
    values = labels + rng.normal(0, 1.0, 40).repeat(5)
    seen = []

    def score(chosen, said):
        counts = np.unique(said, return_counts=True)[1]
        seen.append((counts % 5 == 0).all())
        return auc(chosen, said)

    options = {"samples": 60}
    twice = {"a": values, "b": 2 * values}
    found = scores.bootstrap_people(people, labels, twice, score, **options)
    assert all(seen)
    np.testing.assert_allclose(found["a"], found["b"])
    low, high = scores.interval(found["a"])
    alone = scores.bootstrap_people(np.arange(200), labels, {"a": values}, auc, **options)
    assert high - low > 1.5 * np.subtract(*scores.interval(alone["a"])[::-1])


def test_of_one_outcome_there_is_no_auc_and_no_interval(monkeypatch, capsys):
    data, quarters = random_histories(), Prediction(np.full(7, 0.25), None)
    data.labels[:] = 0
    monkeypatch.setattr(scores, "make_predictor", lambda runs: lambda data: quarters)
    found = evaluate_labels([], data)
    assert not found.keys() & {"auc", "auprc"}
    assert found["cross_entropy"] == pytest.approx(-np.log(0.75))
    assert "AUC and AUPRC are undefined" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--bootstrap needs .*, but 0 of 7 examples came true"):
        evaluate_labels([], data, bootstrap=True)


def test_a_copy_of_the_training_texts_is_found_whatever_its_form(tiny_run, tmp_path):
    config = tiny_run.config
    train = corpus.load(config.data, "train", limit=config.train_limit, seed=config.seed).pairs()
    random.Random(0).shuffle(train)
    spaced = [(f"{source} ", f" {target}") for source, target in train]
    spec = f"tsv:{write(tmp_path / 'other.tsv.gz', spaced)}"
    split = corpus.load(spec, "test")
    count = len({source for source, _ in train})
    said = f"learned from {count} of the {count} sources, so these scores are too high"
    assert said in warning(tiny_run, spec, split)
    dev = corpus.load(config.data, "dev")
    assert warning(tiny_run, config.data, dev) is None
    mixed = dataclasses.replace(
        dev, sources=dev.sources[:50] + split.sources[:7], references=dev.references[:57]
    )
    assert learned_sources(tiny_run, mixed).tolist() == [False] * 50 + [True] * 7
    assert "learned from 7 of the 57 sources" in warning(tiny_run, spec, mixed)
    unknown = dataclasses.replace(split, sources=[f"{text} ☺" for text in split.sources])
    assert warning(tiny_run, spec, unknown) is None


def test_what_a_run_began_from_was_learned_too(tiny_run, tmp_path):
    odd = write(tmp_path / "odd.tsv", [(f"He sleeps {n} times.", "Il dort.") for n in range(70)])
    config = tiny_config(f"data=tsv:{odd}")
    tuned = untrained(config, tmp_path / "tuned", init=tiny_run.path)
    before = corpus.load("phrasebook-en-fr", "train", limit=600, seed=tiny_run.config.seed)
    assert learned_sources(tuned, before).all()


def test_copies_of_images_are_found_by_their_bytes(tmp_path):
    files = make(46, 1).sources
    for name, part in (("own", files), ("copy", files[30:] + make(40, 5).sources)):
        labels = [(f"{name}{number}.png", f"1{number % 9}") for number in range(len(part))]
        write(tmp_path / name / "labels.tsv", labels)
        for (file, _), image in zip(labels, part, strict=True):
            write(tmp_path / name / file, image)
    small = ["source=image", f"data=images:{tmp_path / 'own'}", "target_tokenizer=characters"]
    small += ["decoder_units=13", "embedding_size=7", "readout_units=7", "attention_units=5"]
    small += ["image_height=16", "image_width=32", "convolutions=5:2x2"]
    untrained(override(Config(), small), tmp_path / "run")
    run = load_run(tmp_path / "run")
    split = run.source.load_split(run.config, f"images:{tmp_path / 'copy'}", "all")
    said = warning(run, "images:copy", split)
    assert any(f"learned from {n} of the 56 sources" in said for n in (14, 15, 16))
    run.files.learned.unlink()
    assert warning(run, "images:copy", split) is None
    assert "includes the training data" in warning(run, small[1][5:], split)


def test_copies_of_histories_are_found_whatever_their_ids_and_order():
    data = random_histories(11)
    source = EventSource(data.schema, 32)
    other = dataclasses.replace(data, people=data.people[::-1]).select([7, 3, 5])
    learned = np.isin(source.digests(data), source.digests(other))
    assert np.flatnonzero(learned).tolist() == [3, 5, 7]
    assert not np.isin(source.digests(random_histories(5, seed=1)), source.digests(data)).any()


def test_an_image_run_is_scored_by_exact_texts_errors_and_pointing(image_run, monkeypatch, capsys):
    nbest = make_nbest([image_run], SearchSettings(beam_width=1))  # which is traced once
    monkeypatch.setattr(evaluation, "make_nbest", lambda *_: nbest)
    evaluate.main(["--run", str(image_run.path), "--limit", "6", "--beam-width", "1"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    split = images.load("digits", "test", limit=6)
    texts = [found[0].text for found in nbest(split.sources)]
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
