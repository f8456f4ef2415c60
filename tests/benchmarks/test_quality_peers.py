"""Peers trained on the same pieces: the command on tiny sizes."""

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import quality_peers  # noqa: E402

TINY = [
    *("--preset", "phrasebook-en-fr", "--limit", "211", "--dev-limit", "7", "--beam-width", "2"),
    *("--set", "encoder_units=53", "--set", "decoder_units=67", "--set", "attention_units=43"),
    *("--set", "embedding_size=61", "--set", "readout_units=61", "--set", "validation_limit=5"),
    *("--set", "source_vocab_size=101", "--set", "target_vocab_size=103", "--seconds", "5"),
]


@pytest.mark.slow
def test_the_command(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_ATTENTION_PEERS": str(tmp_path)}
    cases, output = ["keras-attention", "stock Keras layers", "opennmt-tf RNN"], tmp_path / "all"
    at_once = min(2, len(os.sched_getaffinity(0)))
    command = [sys.executable, str(ROOT / "benchmarks" / "quality_peers.py"), *TINY]
    command += ["--at-once", str(at_once), "--output", str(output), "--cases", *cases]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"{cases[2]} skipped, to install it: ") for line in lines)
    result = json.loads(lines[-1])
    assert list(result["rows"]) == cases[:2]
    assert result["cores"] == len(os.sched_getaffinity(0)) // at_once
    for row in result["rows"].values():
        assert 0.8 <= row["of ours"] <= 1.2
        assert row["steps"] > 0
        assert row["sentences/s"] > 0
    with (output / "table.csv").open(newline="") as file:
        assert [row["case"] for row in csv.DictReader(file)] == cases[:2]

    log = (output / cases[0] / "log.txt").read_text()
    scored = json.loads(log.splitlines()[-1])  # by `training.evaluate`
    row = result["rows"][cases[0]]
    assert [row["BLEU"], row["chrF"]] == [round(scored[key], 2) for key in ("bleu", "chrf")]
    assert scored["sentences"] == 7

    settings = json.loads((output / "settings.json").read_text())
    options = argparse.Namespace(**settings, output=output, cases=cases)
    results = [output / case.replace(" ", "-") / "result.json" for case in cases[:2]]
    times = [file.stat().st_mtime_ns for file in results]
    quality_peers.keep_settings(options)
    for case in cases[:2]:
        quality_peers.train(case, options, sizes={})  # nothing is trained again
    assert times == [file.stat().st_mtime_ns for file in results]
    options.seconds = 7.0
    with pytest.raises(SystemExit, match="results of other settings"):
        quality_peers.keep_settings(options)
