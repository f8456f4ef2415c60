"""The benchmarks run, at tiny sizes; what they measure is for them to say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TINY = ["--units", "6", "--vocabulary", "23", "--length", "5", "--repeat", "2"]


def run(tmp_path, name, *arguments):
    """The rows that a benchmark prints, and its first line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_ATTENTION_PEERS": str(tmp_path)}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *TINY, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1])["rows"], lines[0]


@pytest.mark.tensorflow
def test_training_speed(tmp_path):
    cases = ["LSTM additive", "stock Keras layers (easier)", "opennmt-tf"]
    sizes = ["--batch", "3", "--batches", "2"]
    rows, first_line = run(tmp_path, "training_speed.py", *sizes, "--cases", *cases)
    assert first_line.startswith("opennmt-tf skipped, to install it: ")
    assert list(rows) == cases[:2]
    for row in rows.values():
        assert row["tokens_per_s"] > 0
    assert rows[cases[1]][f"times {cases[1]}"] == 1


@pytest.mark.tensorflow
def test_training_speed_of_a_peer_that_is_missing(tmp_path):
    rows, first_line = run(tmp_path, "training_speed.py", "--cases", "marian")
    assert first_line.startswith("marian skipped, to install it: ")
    assert rows == {}


@pytest.mark.tensorflow
def test_training_speed_end_to_end(tmp_path):
    arguments = ["--end-to-end", "--cases", "LSTM additive", "--batch", "23", "--batches", "2"]
    rows, _ = run(tmp_path, "training_speed.py", *arguments)
    (row,) = rows.values()
    assert row["train tokens_per_s"] > 0
    assert row["ratio"] > 0


@pytest.mark.tensorflow
def test_decoding_speed(tmp_path):
    modes = ["--modes", "greedy, batch 32", "beam 5, 1 at a time"]
    rows, first_line = run(tmp_path, "decoding_speed.py", "--sentences", "3", *modes)
    assert first_line.startswith("opennmt-tf skipped, to install it: ")
    ours, rounded, stock = rows.values()
    assert list(ours) == list(rounded) == modes[1:]
    assert list(stock) == modes[1:2]  # a loop for greedy search alone
    assert ours[modes[1]]["sentences_per_s"] > 0
