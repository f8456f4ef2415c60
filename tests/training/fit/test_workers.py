"""Two processes of TensorFlow train one run; one of them is killed, and both start again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.training.conftest import TINY, tiny_config
from training.fit._train import train

LONG = 300  # seconds, far more than anything here takes
SETTINGS = [*TINY, "epochs=3", "dropout=0.0", "max_dev_translations=3"]
TRAIN = """
import sys
import training.fit._recorder
from training.command.options import main_guard
from training.fit._train import DevSet
from training.train import main
training.fit._recorder.draw_curves = lambda files, config: None
DevSet.draw = lambda dev: None
main_guard(lambda: main(sys.argv[1:]))
"""
DIE = """
import os, signal
from training.fit.devices._on_tensorflow import MirroredProcesses
epoch = MirroredProcesses.epoch
def mortal(self, batches, number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return epoch(self, batches, number)
MirroredProcesses.epoch = mortal
"""
EARLY = "from training.command.native import start_tensorflow; start_tensorflow()\n"


def started(scripts, *arguments, home):
    """Start the workers of a training on this machine."""
    addresses = []
    for _ in scripts:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{free.getsockname()[1]}")
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": addresses},
                        "task": {"type": "worker", "index": number},
                    }
                ),
                "TMPDIR": str(home),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, script in enumerate(scripts)
    ]


def ended(processes):
    """Exit status, standard output and standard error of each."""
    try:
        said = [process.communicate(timeout=LONG) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


@pytest.mark.slow
def test_a_killed_worker_ends_the_other_and_both_continue_to_the_same_history(tmp_path):
    train(tiny_config(*SETTINGS), tmp_path / "alone")
    run, home = tmp_path / "run", tmp_path / "tmp"
    home.mkdir()
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    new = ["--preset", "phrasebook-en-fr", "--output", str(run), *options]
    survivor, killed = started([EARLY + TRAIN, EARLY + DIE + TRAIN], *new, home=home)
    assert killed.wait(LONG) == -signal.SIGKILL
    since = time.monotonic()
    ((status, _, errors),) = ended([survivor])
    assert time.monotonic() - since < 30
    killed.communicate()
    assert status == 1
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, errors
    assert "Another worker was lost" in lines[0]
    assert "Traceback" not in errors
    assert len(json.loads((run / "history.json").read_text())) == 1
    first, second = ended(started([EARLY + TRAIN] * 2, "--resume", "--output", str(run), home=home))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert json.loads(first[1].splitlines()[-1])["epochs_done"] == 3
    assert "waiting until 1 process has started, for at most 300 s\n" in first[1]
    assert "in 2 processes on 2 devices" in first[1]
    assert second[1] == ""
    assert [path for path in home.iterdir() if path.is_dir()] == []  # workers make no copies
    ours, theirs = (
        json.loads((path / "history.json").read_text()) for path in (run, tmp_path / "alone")
    )
    for record, expected in zip(ours, theirs, strict=True):
        for key in ("epoch", "loss", "val_perplexity", "learning_rate", "bleu"):
            assert record[key] == pytest.approx(expected[key], rel=1e-3), key
