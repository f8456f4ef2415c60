"""The benchmarks run, at tiny sizes; what they measure is for them to say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]
TINY = ["--units", "6", "--vocabulary", "23", "--length", "5", "--repeat", "2"]


def run(tmp_path, name, *arguments, sizes=TINY):
    """The rows that a benchmark prints, and its first line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_ATTENTION_PEERS": str(tmp_path)}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *sizes, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1])["rows"], lines[0]


@pytest.mark.slow
@pytest.mark.tensorflow
def test_training_speed(tmp_path):
    cases = ["keras-attention", "stock Keras layers (easier), mixed_bfloat16", "opennmt-tf, XLA"]
    sizes = ["--batch", "3", "--batches", "2", "--model", "GRU additive"]
    rows, first_line = run(tmp_path, "training_speed.py", *sizes, "--cases", *cases)
    assert first_line.startswith("opennmt-tf, XLA skipped, to install it: ")
    assert list(rows) == cases[:2]
    for row in rows.values():
        assert row["tokens_per_s"] > 0
    assert rows[cases[0]][f"{cases[0]}: times as fast"] == 1


def test_modes_stand_beside_the_plain_formulas(tmp_path):
    sizes = ["--modes", "--tiny", "--repeat", "1", "--backend", keras.backend.backend()]
    rows, _ = run(tmp_path, "attention_layer.py", sizes=sizes)
    modes = {"tensorflow": 4, "jax": 2, "torch": 2}[keras.backend.backend()]
    assert len({row["mode"] for row in rows}) == modes
    assert [row["kind"] for row in rows] == ["scores", "decoder"] * modes
    assert all(row["forward_ratio"] > 0 and row["step_ratio"] > 0 for row in rows)


@pytest.mark.slow
def test_data_parallel(tmp_path):
    backend = keras.backend.backend()
    if backend == "torch":
        pytest.skip("one process only")
    sizes = [*TINY, "--batch", "4", "--batches", "2", "--backends", backend]
    rows, _ = run(tmp_path, "data_parallel.py", sizes=sizes)
    assert [(row["backend"], row["processes"]) for row in rows] == [(backend, 1), (backend, 2)]
    for row in rows:
        assert row["tokens_per_s"] == pytest.approx(4 * 6 / row["step_ms"] * 1e3, rel=0.05)
    assert rows[0]["times_one"] == 1


@pytest.mark.slow
@pytest.mark.tensorflow
def test_decoding_speed(tmp_path):
    modes = ["--modes", "greedy, batch 32", "beam 5, 1 at a time"]
    rows, first_line = run(tmp_path, "decoding_speed.py", "--sentences", "3", *modes)
    assert first_line.startswith("opennmt-tf skipped, to install it: ")
    ours, rounded, onnx, small, *stock = rows.values()
    assert list(ours) == list(rounded) == list(onnx) == list(small) == modes[1:]
    assert [list(row) for row in stock] == [modes[1:2]] * 2  # loops for greedy search alone
    assert ours[modes[1]]["sentences_per_s"] > 0


@pytest.fixture
def onnx_version(tmp_path):
    from serving.export._version import export
    from training.runs.run import load_run

    settings = {"beam_width": 2, "num_results": 1, "max_source_length": 9, "length_penalty": 1.0}
    old = load_run(ROOT / "tests" / "fixtures" / "old_run" / "run")
    return export([old], tmp_path / "old", form="onnx", **settings)


@pytest.mark.tensorflow
def test_serving_load(tmp_path, onnx_version):
    (tmp_path / "texts").write_text("He sleeps.\nShe eats an apple.\n")
    words = ["--model", str(onnx_version.parent), "--beside", str(onnx_version.parent)]
    words += ["--texts", str(tmp_path / "texts"), "--requests", "5", "--clients", "2"]
    rows, _ = run(tmp_path, "serving_load.py", *words, sizes=())
    assert [row["requests"] for row in rows] == [5] * 20
    assert not any(row["errors"] or row["different"] for row in rows)
    assert sum("ready_s" in row for row in rows) == 4


@pytest.mark.tensorflow
def test_serving_limits(tmp_path, onnx_version):
    words = ["--model", str(onnx_version.parent), "--expensive", "0", "2", "--cancelled", "0"]
    words += ["--expensive-texts", "9", "--seconds", "0.5"]
    rows, _ = run(tmp_path, "serving_limits.py", *words, sizes=())
    assert [row["case"] for row in rows] == ["next to 0", "next to 2"]
    assert all(row["count"] and row["p50_ms"] <= row["p99_ms"] for row in rows)


QUALITY = [
    *("--preset", "phrasebook-en-fr", "--limit", "211", "--dev-limit", "7", "--beam-width", "2"),
    *("--set", "encoder_units=53", "--set", "decoder_units=67", "--set", "attention_units=43"),
    *("--set", "embedding_size=61", "--set", "readout_units=61", "--set", "max_dev_translations=5"),
    *("--set", "source_vocab_size=101", "--set", "target_vocab_size=103", "--seconds", "5"),
]


@pytest.mark.slow
@pytest.mark.tensorflow
def test_quality_of_peers(tmp_path):
    cases, output = ["keras-attention", "stock Keras layers"], tmp_path / "all"
    words = ["--output", str(output), "--cases", *cases]
    rows, _ = run(tmp_path, "quality_peers.py", *words, sizes=QUALITY)
    assert list(rows) == cases
    for row in rows.values():
        assert 0.8 <= row["of ours"] <= 1.2
        assert row["steps"] > 0
    log = (output / cases[0] / "log.txt").read_text()
    scored = json.loads(log.splitlines()[-1])  # by `training.evaluate`
    row = rows[cases[0]]
    assert [row["BLEU"], row["chrF"]] == [round(scored[key], 2) for key in ("bleu", "chrf")]
    results = [output / case.replace(" ", "-") / "result.json" for case in cases]
    times = [file.stat().st_mtime_ns for file in results]
    run(tmp_path, "quality_peers.py", *words, sizes=QUALITY)  # nothing is trained again
    assert times == [file.stat().st_mtime_ns for file in results]
