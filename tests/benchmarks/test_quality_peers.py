"""Peers trained on the same pieces: their texts, and the command on tiny sizes."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = [
    *("--preset", "phrasebook-en-fr", "--limit", "211", "--dev-limit", "7", "--beam-width", "2"),
    *("--set", "encoder_units=53", "--set", "decoder_units=67", "--set", "attention_units=43"),
    *("--set", "embedding_size=61", "--set", "readout_units=61", "--set", "validation_limit=5"),
    *("--set", "source_vocab_size=101", "--set", "target_vocab_size=103"),
]


@pytest.mark.tensorflow
def test_the_command(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_ATTENTION_PEERS": str(tmp_path)}
    script = [sys.executable, str(ROOT / "benchmarks" / "quality_peers.py")]
    cases = ["keras-attention", "stock Keras layers", "opennmt-tf RNN", "joeynmt Transformer"]
    seconds = ["--seconds", "5"]  # the preset takes the time of one epoch
    at_once = min(2, len(os.sched_getaffinity(0)))
    seconds += ["--at-once", str(at_once)]
    command = [*script, *TINY, *seconds, "--output", str(tmp_path / "all"), "--cases", *cases]

    def run():
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.splitlines()

    lines = run()
    for peer in ("opennmt-tf RNN", "joeynmt Transformer"):
        assert any(line.startswith(f"{peer} skipped, to install it: ") for line in lines)
    result = json.loads(lines[-1])
    assert list(result["rows"]) == cases[:2]
    assert result["cores"] == len(os.sched_getaffinity(0)) // at_once
    for row in result["rows"].values():
        assert 0.8 <= row["of ours"] <= 1.2
        assert row["steps"] > 0
        assert row["sentences/s"] > 0
    with (tmp_path / "all" / "table.csv").open(newline="") as file:
        assert [row["case"] for row in csv.DictReader(file)] == cases[:2]

    log = (tmp_path / "all" / cases[0] / "log.txt").read_text()
    scored = json.loads(log.splitlines()[-1])  # by `training.evaluate`
    row = result["rows"][cases[0]]
    assert [row["BLEU"], row["chrF"]] == [round(scored[key], 2) for key in ("bleu", "chrf")]
    assert scored["sentences"] == 7

    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("result.json")}
    assert json.loads(run()[-1]) == result  # nothing is trained again
    assert times == {file: file.stat().st_mtime_ns for file in tmp_path.rglob("result.json")}
    command[command.index("5")] = "7"
    with pytest.raises(subprocess.CalledProcessError):
        run()
