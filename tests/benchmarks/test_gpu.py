"""The report of a GPU, on the CPU and tiny sizes: it is whole, and keeps to its minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu  # noqa: E402
from gpu_parts import cases, profile  # noqa: E402


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


TENSORFLOW = os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow"


CASES = ("tatoeba-en-fr", "stock-512", "gnmt-greedy", "cold", "warm")


@pytest.mark.slow
def test_every_step_gives_rows(tmp_path):
    only = [*CASES, "machine", "layers", "attention"]
    only += [] if TENSORFLOW else ["training", "preset"]
    status, rows = run(tmp_path, "--minutes", "30", "--patience", "20", "--only", *only)
    assert status == 0
    by_step = {step: [r for r in rows if r["step"] == step] for step in {r["step"] for r in rows}}
    steps = {"machine", "training", "decoding", "preset", "layers", "attention"}
    assert set(by_step) == (steps if TENSORFLOW else steps - {"decoding"})
    assert not [row for row in rows if "error" in row or "ended" in row]
    assert {row["right"] for row in by_step["layers"]} == {"yes"}
    assert all(row["tokens_per_s"] > 0 for row in by_step["training"])
    assert by_step["preset"][0]["epochs"] == 1
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    report = (tmp_path / "report.md").read_text()
    assert all(f"| {row['case']} " in report for row in rows)


def test_the_cases_of_tensorflow_are_known_and_the_first_end_within_nine_minutes():
    known = {case["name"] for case in json.loads(cases.CASES.read_text())}
    tasks = [task for task in gpu.TENSORFLOW if task.step in ("training", "decoding")]
    assert {task.case for task in tasks} <= known
    assert sum(task.seconds for task in gpu.TENSORFLOW[:7]) <= 9 * 60


def test_a_case_that_does_not_end_has_a_row_and_others_run(tmp_path):
    _, rows = run(tmp_path, "--only", "training", "--patience", "0.02", "--minutes", "0.05")
    ended = [row["ended"] for row in rows]
    assert ended[0].startswith("no: stopped after ")
    if TENSORFLOW:
        assert rows[0] == {"step": "training", "case": "tatoeba-en-fr", "ended": ended[0]}
        assert ended[0] == "no: stopped after 2 s"
        assert ended[-1] == "no: the minutes are over"
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows


# As `ncu --csv --page details --metrics gpu__time_duration.sum` prints it: a line a launch and
# metric. Older releases have "nsecond" for "ns".
NCU = """
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4242","void gemm<tf32, (int)4>(T1)","gpu__time_duration.sum","ns","1,200,500"
"1","4242","loop_add_fusion","gpu__time_duration.sum","nsecond","900"
"2","4242","void gemm<tf32, (int)4>(T1)","gpu__time_duration.sum","us","299.50"
"3","4242","loop_add_fusion","gpu__time_duration.sum","","n/a"
"4","4242","void gemm<tf32, (int)4>(T1)","launch__grid_size","","16"
"""


def test_the_kernels_of_a_step_and_the_share_that_computes():
    rows = list(profile.rows(NCU.strip().splitlines(), 3.0))
    assert rows[0]["launches"] == 3
    assert rows[0]["us"] == pytest.approx(1500.9)
    assert rows[0]["share_of_step"] == pytest.approx(0.5003)
    counts = [(row["case"], row["launches"]) for row in rows[1:]]
    assert counts == [("void gemm<tf32, (int)4>(T1)", 2), ("loop_add_fusion", 1)]
    (row,) = profile.rows([], 3.0)
    assert "ncu is missing" in row["ended"]


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
