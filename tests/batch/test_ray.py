"""Batch translation by Ray's workers. Run by `make test-batch`."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serving.batch.__main__ import main
from tests.serving.conftest import add_version
from tests.serving.saved_models import save_upper

ROOT = Path(__file__).parents[2]
FILES, LINES = 11, 3001


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("batch"), random.Random(5)
    add_version(save_upper(root / "saved"), root / "upper", 1)
    (root / "in").mkdir()
    for number in range(FILES):
        words = (" ".join(rng.choices("abcdefg", k=rng.randint(1, 9))) for _ in range(LINES))
        (root / "in" / f"part-{number:02d}.txt").write_text("\n".join(words) + "\n")
    main(command(root, "expected"))
    return root


def command(root, output, *more):
    words = ["--model", root / "upper", "--input", root / "in" / "*.txt", "--output", root / output]
    return [*map(str, words), "--batch-size", "16", *more]


def workers():
    """Process ids of Ray's workers that have a model."""
    search = ["pgrep", "-f", "ray::.*_Worker"]
    found = subprocess.run(search, capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def test_workers_that_are_killed_neither_lose_nor_double_a_line(corpus):
    batch = [sys.executable, "-m", "serving.batch", *command(corpus, "out", "--workers", "2")]
    job = subprocess.Popen(batch, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    killed = most = before = 0
    while job.poll() is None and killed < 2:
        time.sleep(0.1)
        found = workers()
        # One that starts or ends may stand beside the others for a moment.
        if not killed:
            most = max(most, min(before, len(found)))
        before = len(found)
        if len(list((corpus / "out").glob("part-*.jsonl"))) > 3 * killed and found:
            os.kill(found[0], signal.SIGKILL)
            killed += 1
    output, _ = job.communicate(timeout=300)
    assert killed == 2
    assert 1 <= most <= 2
    assert job.returncode == 0
    last = json.loads(output.splitlines()[-1])
    assert last["files"] == FILES
    assert last["lines"] + LINES * last["were_there"] == FILES * LINES
    for number in range(FILES):
        name = f"part-{number:02d}.jsonl"
        assert (corpus / "out" / name).read_bytes() == (corpus / "expected" / name).read_bytes()
    made, expected = ({p.name for p in (corpus / x).iterdir()} for x in ("out", "expected"))
    assert made == expected


def test_a_cluster_that_is_not_there_is_one_line(corpus):
    words = command(corpus, "none", "--address", "ray://127.0.0.1:9")
    batch = [sys.executable, "-m", "serving.batch", *words]
    found = subprocess.run(batch, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in found.stderr
