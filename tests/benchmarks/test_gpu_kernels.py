"""What a training step launches on a GPU does not grow; XLA compiles it here for a card."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu_kernels import COUNTS, PARTS, count_kernels, count_programs, table  # noqa: E402
from gpu_parts.launches import count  # noqa: E402

THUNKS = """
000: kGemm                       [a] gemm.1
001: kCommandBuffer              [b] command_buffer
  000: kKernel                   [c] fusion.1
  001: kKernel                   [d] fusion.2
002: kWhile                      [e] while.1
  condition:
    000: kKernel                 [f] compare
  body:
    000: kGemm                   [g] gemm.2
    001: kConditional            [h] conditional
      000: kKernel               [i] fusion.3
003: kWhile                      [j] while.2
  body:
    000: kKernel                 [k] fusion.4
"""
OPTIMIZED = """HloModule step
ENTRY main {
  %while.1 = while(%a), body=%b, backend_config={"known_trip_count":{"n":"5"}}
  %while.2 = while(%c), body=%d
}"""


def test_kernels_of_loops_count_as_often_as_these_run():
    row = count({"name": "x", "shape": [3, 7]}, THUNKS, OPTIMIZED, "Total bytes: 3145728 (3.0MiB)")
    assert row == {
        "name": "x",
        "kernels": 3 + 2 * 5 + 1 * 7,
        "outside_loops": 3,
        "loops": [{"kernels": 2, "times": 5}, {"kernels": 1, "times": None}],
        "known_trip_counts": 1,
        "mebibytes": 3,
    }
    row |= {"tracing_s": 1.26, "lowering_s": 0.5, "compiling_s": 12.04}
    shown = table([row]).splitlines()[-1]
    assert shown == "| x | 20 | 2 × 5, 1 × ? | 1 of 2 | 3 | 1.3 | 0.5 | 12.0 |"


@pytest.mark.parametrize("name", ["small-lstm", pytest.param("small-gru", marks=pytest.mark.slow)])
def test_a_training_step_launches_no_more_kernels_than_before(tmp_path, name):
    cases = json.loads((PARTS / "kernel_cases.json").read_text(encoding="utf-8"))
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    assert counts.keys() == {case["name"] for case in cases}
    cases = [case for case in cases if case["name"] == name]
    (row,) = count_kernels(cases, tmp_path, "tensorflow", ROOT / "build/gpu-kernels-env")
    assert row["name"] == name
    assert row["kernels"] <= counts[name]
    assert min(row[time] for time in ("tracing_s", "lowering_s", "compiling_s")) > 0


@pytest.mark.slow
def test_a_presets_training_compiles_few_programs():
    """The step and dev's search, of one shape each."""
    assert count_programs("phrasebook-en-fr").startswith("phrasebook-en-fr: 2 programs. 1 shape, ")
