"""The report of a GPU, on the CPU and tiny sizes: it is whole, and keeps to its minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(output, *arguments):
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    command = [
        *(sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--backend", backend, "--tiny"),
        *("--output", str(output), *arguments),
    ]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, json.loads((output / "report.json").read_text())["rows"]


def test_every_step_gives_rows(tmp_path):
    status, rows = run(tmp_path, "--minutes", "30")
    assert status == 0
    by_step = {step: [r for r in rows if r["step"] == step] for step in {r["step"] for r in rows}}
    assert set(by_step) == {"machine", "layers", "attention", "training", "preset"}
    assert not [row for row in rows if "error" in row]
    assert by_step["machine"][1]["copy_gb_per_s"] > 0
    assert {row["right"] for row in by_step["layers"]} == {"yes"}
    assert by_step["attention"][0]["forward_share_of_floor"] > 0
    assert all(row["tokens_per_s"] > 0 for row in by_step["training"])
    cases = [row["case"] for row in by_step["training"]]
    assert cases.count("training.train_arrays") == 2  # one a precision
    assert cases.count("stock Keras (easier)") == 2
    assert by_step["preset"][0]["epochs"] == 1
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        rates = [row["sentences_per_s"] for row in by_step["preset"] if "translate" in row["case"]]
        assert len(rates) == 3
        assert min(rates) > 0
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    report = (tmp_path / "report.md").read_text()
    assert all(f"| {row['case']} " in report for row in rows)


@pytest.mark.parametrize("minutes", ["0.0001", "0"])
def test_what_there_was_no_time_for_is_said(tmp_path, minutes):
    status, rows = run(tmp_path, "--minutes", minutes, "--steps", "machine", "training")
    assert status == 0
    assert [row["step"] for row in rows] == ["machine", "training"]
    assert all("the minutes are over" in row["case"] for row in rows)
