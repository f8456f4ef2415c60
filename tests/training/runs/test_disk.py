"""Runs on a disk of their own: what a power cut leaves, and what a full disk does."""

import errno
import os
import shutil
import subprocess

import keras
import numpy as np
import pytest

from training.command.files import write_json
from training.runs.checkpoints import restore_checkpoint, save_best, save_checkpoint
from training.runs.files import RunFiles

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("mkfs.ext4"), reason="mounting takes root"
    ),
]


def mounted(folder, *words):
    """Mount at a folder, or leave the test out where the machine does not let root."""
    folder.mkdir()
    if subprocess.run(["mount", *map(str, words), str(folder)], check=False).returncode:
        pytest.skip("this machine mounts nothing")
    return folder


@pytest.fixture
def model():
    source = keras.Input((7,))
    made = keras.Model(source, keras.layers.Dense(211)(source))
    made.compile("adam", "mse")
    made.train_on_batch(np.ones((3, 7)), np.ones((3, 211)))
    return made


def test_a_power_cut_leaves_the_last_epoch_that_was_kept(tmp_path, model):
    """A copy of the device is what is on the disk when the power goes."""
    device, copy = tmp_path / "device", tmp_path / "copy"
    device.touch()
    os.truncate(device, 64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(device)], check=True)
    disk = mounted(tmp_path / "disk", "-o", "loop", device)
    try:
        files = RunFiles(disk / "run")
        files.path.mkdir()
        history = []
        for epoch in (1, 2, 3):
            history.append({"epoch": epoch, "val_perplexity": 1.0 + epoch})
            save_best(files, model)
            save_checkpoint(files, model, history)
            write_json(files.history, history)
            shutil.copyfile(device, copy)
            after = mounted(tmp_path / f"after-{epoch}", "-o", "loop", copy)
            try:
                there = RunFiles(after / "run")
                assert restore_checkpoint(there, model, writes=False) == history
                there.check(there.best)
            finally:
                subprocess.run(["umount", str(after)], check=True)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_an_error_and_the_epoch_before_stays(tmp_path, model):
    disk = mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=3m", "tmpfs")
    try:
        files = RunFiles(disk / "run")
        save_checkpoint(files, model, [{"epoch": 1}])
        with (disk / "other").open("wb") as other:
            os.posix_fallocate(other.fileno(), 0, shutil.disk_usage(disk).free)
        with pytest.raises(OSError, match="No space left") as error:
            save_checkpoint(files, model, [{"epoch": 1}, {"epoch": 2}])
        assert error.value.errno == errno.ENOSPC
        assert restore_checkpoint(files, model, writes=False) == [{"epoch": 1}]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
