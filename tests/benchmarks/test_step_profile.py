"""The account of a training step: its arithmetic, and one of a tiny step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def step_profile(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import step_profile

    return step_profile


def test_an_instant_is_shared_out_among_what_runs(step_profile):
    rng = np.random.default_rng(5)
    starts = rng.uniform(0, 10, 31)
    ends = starts + rng.uniform(0, 2, 31)
    parts = rng.choice(["a", "b", "c"], 31)
    found = step_profile.shares(zip(starts, ends, parts, strict=True))
    expected = dict.fromkeys("abc", 0.0)
    instants = np.arange(0, 12, 0.0005)
    for instant in instants:
        running = parts[(starts <= instant) & (instant < ends)]
        for part in running:
            expected[part] += 0.0005 / len(running)
    for part, spent in expected.items():
        assert found[part] == pytest.approx(spent, rel=5e-3)


@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        ("adam/ResourceApplyAdam_3", "ResourceApplyAdam", "Adam"),
        ("seq2seq/output_1/Tensordot/MatMul", "_MklMatMul", "output layer, products"),
        ("seq2seq/decoder/while/body/add", "AddV2", "decoder's loop, the rest"),
        ("gradient_tape/decoder/while_grad/MatMul", "MatMul", "decoder's loop, products"),
        ("MatMul_3", "_MklMatMul", "gradients of kernels, after the loops"),
        ("mul_1", "Mul", "embeddings, gradients of the loss, sums"),
    ],
)
def test_operations_belong_to_parts_by_name_and_kind(step_profile, name, kind, part):
    assert step_profile.part_of(f"StatefulPartitionedCall/{name}", kind) == part


def test_the_parts_of_a_tiny_step_add_up_to_it():
    tiny = ["--units", "6", "--vocabulary", "23", "--length", "5", "--repeat", "1"]
    command = [sys.executable, str(ROOT / "benchmarks" / "step_profile.py"), *tiny]
    done = subprocess.run(
        [*command, "--batch", "3", "--batches", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    spent = json.loads(done.stdout.splitlines()[-1])["ms"]
    parts = {part: ms for part, ms in spent.items() if not part.startswith("step")}
    assert sum(parts.values()) == pytest.approx(spent["step"], abs=0.1)
    assert parts["decoder's loop, products"] > 0
    assert parts["Adam"] > 0
    assert parts["no operation runs"] >= 0
