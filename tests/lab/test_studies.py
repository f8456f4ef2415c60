import dataclasses
import json
import shutil

import numpy as np
import pytest
import sacrebleu

from lab import alignment, gradients, length, mechanisms, shared
from lab.__main__ import main
from lab.readings import Reading, read
from tests.lab.conftest import assert_kept, read_table
from training.command.errors import UserError
from training.data.read import texts as corpus
from training.data.read._sentences import Split
from training.decode.settings import SearchSettings
from training.decode.texts import make_attender
from training.metrics import ratio
from training.model.seq2seq import build_seq2seq
from training.score import _evaluation as evaluation
from training.score import _links as links


def make_run(path, run, **keys):
    """A run directory like `run`'s, with another configuration and weights as initialised."""
    config = dataclasses.replace(run.config, **keys)
    shutil.copytree(run.path, path)
    config.save(path / "config.toml")
    model = build_seq2seq(config, run.source.size, run.target_tokenizer.vocab_size)
    model.save_weights(path / "best.weights.h5")
    (path / "digests.json").unlink()  # of the other weights
    return path


def test_the_length_study_ends_in_a_table_and_a_figure_and_translates_once(
    tiny_run, tmp_path, monkeypatch, capsys
):
    sentences = corpus.load("phrasebook-en-fr", "dev", limit=60)
    monkeypatch.setattr(corpus, "load", lambda *_, **__: sentences)
    paths = {n: make_run(tmp_path / n, tiny_run, attention=n) for n in ("none", "general")}
    paths["additive"] = tiny_run.path
    output = tmp_path / "study"
    monkeypatch.setattr(length, "PER_BUCKET", 3)
    command = ["length", "--output", str(output), "--beam-width", "1"]
    command += [word for name, path in paths.items() for word in ("--run", f"{name}={path}")]
    main(command)
    rows = read_table(output / "length.csv")
    assert {(row["set"], row["attention"]) for row in rows} == {
        (s, a) for s in ("single", "real", "joined") for a in ("none", "additive", "general")
    }
    joined = [row for row in rows if row["set"] == "joined"]
    assert [row["sentences"] for row in joined] == ["3"] * 6 * 3
    assert {row["few"] for row in joined} == {"yes"}
    words = [len(source.split()) for source in sentences.sources]
    for row in rows:
        if (row["set"], row["attention"]) != ("single", "additive"):
            continue
        low, high = map(int, row["words"].split("-"))
        chosen = [i for i, count in enumerate(words) if low <= count <= high]
        kept = json.loads((output / "translations" / "single-additive.json").read_text())["value"]
        references = [[sentences.references[i][0] for i in chosen]]
        expected = sacrebleu.corpus_bleu([kept[i] for i in chosen], references).score
        assert float(row["bleu"]) == pytest.approx(expected, rel=1e-4)
        assert row["few"] == ("yes" if len(chosen) < 50 else "no")
        assert row["references"] == "1"
    assert (output / "length.png").stat().st_size > 10_000
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert str(output / "length.csv") in last["files"]
    assert_kept(command, output / "length.csv", monkeypatch, shared, "make_translator")


def test_a_model_that_cannot_be_built_is_refused_before_any_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "train", None)
    command = ["mechanisms", "--preset", "phrasebook-en-fr", "--output", str(tmp_path)]
    with pytest.raises(UserError, match=r"dot cannot be built: .*same width"):
        main([*command, "--set", "decoder_units=7"])


def test_the_mechanisms_study_scores_as_evaluate_does_and_once(tiny_run, tmp_path, monkeypatch):
    general = make_run(tmp_path / "general", tiny_run, attention="general")
    split = corpus.load("phrasebook-en-fr", "dev", limit=13)
    monkeypatch.setattr(corpus, "load", lambda *_, **__: split)
    output = tmp_path / "study"
    command = ["mechanisms", "--output", str(output), "--beam-width", "1"]
    command += ["--only", "additive", "--only", "general"]
    command += ["--run", f"additive={tiny_run.path}", "--run", f"general={general}"]
    main(command)
    first, second = read_table(output / "mechanisms.csv")
    expected = evaluation.evaluate([tiny_run], split, SearchSettings(beam_width=1))
    assert float(first["bleu"]) == pytest.approx(expected["bleu"], rel=1e-4)
    assert float(first["aer"]) == pytest.approx(expected["aer"], rel=1e-4)
    assert int(first["weights"]) == tiny_run.model.count_params()
    # dq·dk of general for dq·units + dk·units + units of additive attention
    encoder, decoder, units = 2 * 11, 13, 5
    difference = encoder * decoder - units * (encoder + decoder + 1)
    assert int(second["weights"]) - int(first["weights"]) == difference
    assert_kept(command, output / "mechanisms.csv", monkeypatch, mechanisms, "evaluate")


def test_bleu_by_length_is_that_of_each_bucket_alone():
    """By sacrebleu; 41 words are in none."""
    hypotheses = ["Elle mange une pomme verte.", "il dort .", "Je sais", "Où est-il ?", "x"]
    references = [["Elle mange une pomme."], ["Il dort.", "Il dort !"], ["Je sais."], ["Où ?"]]
    references += [["x"]]
    split = Split(["w " * count for count in (5, 40, 31, 6, 41)], references)
    rows = length.table_rows("some", "none", hypotheses, split, "bleu", lowercase=False)
    counts = [(row["words"], row["sentences"], row["references"]) for row in rows]
    assert counts == [("1-5", 1, 1), ("6-10", 1, 1), ("31-40", 2, 1.5)]
    for row, chosen in zip(rows, [[0], [3], [1, 2]], strict=True):
        streams = [[references[i][0] for i in chosen]]
        if 1 in chosen:
            streams.append([references[1][1], None])
        expected = sacrebleu.corpus_bleu([hypotheses[i] for i in chosen], streams).score
        assert row["bleu"] == pytest.approx(expected)
        assert row["low"] <= expected + 1e-9
        assert expected - 1e-9 <= row["high"]


def test_the_alignment_study_reports_what_evaluate_does(tiny_run, tmp_path, monkeypatch):
    readings = (Reading(), Reading("argmax", 0.0, 1, "union"), Reading("argmax", 0.0))
    readings += (Reading("argmax", 0.0, tension=9.0),)
    monkeypatch.setattr(alignment, "READINGS", readings)
    split, dev = (corpus.load("phrasebook-en-fr", name, limit=17) for name in ("test", "dev"))
    sets = [("some", split, dev), ("by halves", split, None)]
    monkeypatch.setattr(alignment, "gold_sets", lambda *_: iter(sets))
    output = tmp_path / "study"
    main(["alignment", "--output", str(output), "--run", f"tiny={tiny_run.path}"])
    rows = read_table(output / "readings.csv")
    assert len(rows) == 4 + 5
    scores = evaluation.evaluate([tiny_run], split, SearchSettings(beam_width=1))  # the first
    for row in (rows[0], rows[4]):
        assert float(row["aer"]) == pytest.approx(scores["aer"], rel=1e-4)
        assert float(row["diagonal"]) == pytest.approx(scores["aer_diagonal"], rel=1e-4)
    weights = links.attend(make_attender([tiny_run]), dev)
    found = [[read(each, reading) for each in weights] for reading in readings]
    errors = [links.alignment_errors(each, dev.sure, dev.possible) for each in found]
    on_dev = [ratio(each.sum(0)) for each in errors]
    assert [row["chosen"] for row in rows[:4]].index("yes") == int(np.argmin(on_dev))
    some, halved = read_table(output / "alignment.csv")
    assert (some["chosen"], halved["chosen"]) == ("yes", "yes")
    for row in (some, halved):
        assert float(row["low"]) <= float(row["aer"]) <= float(row["high"])
    assert (output / "heat-maps.png").stat().st_size > 5_000


def test_the_reading_of_each_half_is_the_best_of_the_other():
    """Errors and totals: the first reading is right in the first half alone, the second never."""
    right_first, wrong, right_last = Reading(), Reading("argmax"), Reading(shift=1)
    errors = {
        right_first: np.array([[0, 3], [0, 5], [5, 7], [7, 7], [2, 3]]),
        wrong: np.array([[3, 3], [5, 5], [7, 7], [7, 7], [3, 3]]),
        right_last: np.array([[2, 3], [4, 5], [0, 7], [0, 7], [0, 3]]),
    }
    chosen, crossed = alignment.choose_by_halves(errors)
    assert chosen == [right_last, right_first]
    np.testing.assert_array_equal(crossed, [[2, 3], [4, 5], [5, 7], [7, 7], [2, 3]])


@pytest.mark.parametrize("gain", [0.7, 1.0, 1.3])
def test_a_recurrent_kernel_of_a_gain_multiplies_the_gradient_by_it_at_each_step(gain, rng):
    """Near 0 tanh is the identity, so that each step is a rotation times the gain."""
    inputs = 1e-7 * rng.normal(size=(3, 11, 5)).astype("float32")
    norms = gradients.gradient_norms("simple_rnn", False, gain, inputs, rng)
    assert norms.shape == (11, 3, 2)
    np.testing.assert_allclose(norms[:-1] / norms[1:], gain, rtol=1e-3)
    np.testing.assert_array_equal(norms[..., 0], norms[..., 1])


def test_the_gradients_study_ends_in_tables_and_a_figure(tmp_path, monkeypatch):
    for name, value in {"LENGTH": 5, "UNITS": 3, "BATCH_SIZE": 2, "SEEDS": 1}.items():
        monkeypatch.setattr(gradients, name, value)
    main(["gradients", "--output", str(tmp_path)])
    rows = read_table(tmp_path / "gradients.csv")
    assert len(rows) == 3 * 2 * 3 * 5
    assert {row["distance"] for row in rows} == set("12345")
    for row in read_table(tmp_path / "summary.csv"):
        key = {name: row[name] for name in ("cell", "attention", "gain")}
        own = [float(r["norm_state"]) for r in rows if key.items() <= r.items()]
        assert float(row["far_by_near"]) == pytest.approx(own[-1] / own[0], rel=1e-4)
    assert (tmp_path / "gradients.png").stat().st_size > 10_000
