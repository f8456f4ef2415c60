"""The report of a GPU, on the CPU and tiny sizes: it is whole, and keeps to its minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu_parts import cases, machine  # noqa: E402


def run(output, *arguments):
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    command = [
        *(sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--backend", backend, "--tiny"),
        *("--output", str(output), *arguments),
    ]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    if backend == "tensorflow":
        environment["KERAS_ATTENTION_DEVICE"] = "gpu"
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, json.loads((output / "report.json").read_text())["rows"]


def test_every_step_gives_rows(tmp_path):
    status, rows = run(tmp_path, "--minutes", "30")
    assert status == 0
    by_step = {step: [r for r in rows if r["step"] == step] for step in {r["step"] for r in rows}}
    steps = {"machine", "training", "decoding", "preset", "graphs", "layers", "attention"}
    assert set(by_step) == steps
    assert not [row for row in rows if "error" in row]
    assert by_step["machine"][1]["copy_gb_per_s"] > 0
    assert {row["right"] for row in by_step["layers"]} == {"yes"}
    assert by_step["attention"][0]["forward_share_of_floor"] > 0
    assert all(row["tokens_per_s"] > 0 for row in by_step["training"])
    cases = [row["case"] for row in by_step["training"]]
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        assert cases == ["tatoeba-en-fr", "tatoeba-1024", "lstm-512", "stock-512", "gnmt"]
        assert [row["case"] for row in by_step["graphs"]] == ["tatoeba-en-fr", "lstm-512"]
        searches = [(row["case"], row["beam_width"]) for row in by_step["decoding"]]
        assert searches[2:] == [("gnmt-greedy", 1), ("gnmt-beam-5", 5)]
        for step in ("training", "graphs", "decoding"):
            assert all(row["us_a_kernel"] > 0 < row["first_step_s"] for row in by_step[step])
        cold, warm, greedy, beams, *_ = by_step["preset"]
        assert (cold["epochs"], warm["epochs"]) == (2, 1)
        assert 0 < cold["seconds_to_second_epoch"] < cold["all_seconds"]
        assert (greedy["beam_width"], beams["beam_width"]) == (1, 5)
    else:
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


def test_shares_are_of_the_cards_rate_in_that_precision(monkeypatch):
    monkeypatch.setattr(machine, "_card", lambda: {"card": "NVIDIA H100 80GB HBM3"})
    assert machine.share(98.9e12, "mixed_bfloat16") == pytest.approx(0.1)
    assert machine.share(98.8e12, "float32") == pytest.approx(0.2)
    monkeypatch.setattr(machine, "_card", lambda: {"card": "another"})
    assert machine.share(98.9e12, "float32") is None


def test_products_with_weights_are_counted_by_where_they_are_read():
    (case,) = (x for x in json.loads(cases.CASES.read_text()) if x["name"] == "small-gru")
    model = cases.build_model(cases.config_of(case), case["vocab"], case["vocab"])
    units, decoder, width, attention = 13, 17, 19, 23
    encoder = 2 * 3 * units * (width + units) + 2 * units * attention
    cell = 3 * decoder * (2 * width + decoder) + decoder * attention
    readout = (decoder + 2 * units) * width + width * case["vocab"]
    (source, target), batch = case["shape"], case["batch"]
    expected = batch * (source * encoder + target * (cell + readout))
    assert cases.multiplications(model, case) == expected
