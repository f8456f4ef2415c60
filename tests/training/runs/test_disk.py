"""A run on a full disk of its own."""

import errno
import os
import shutil
import subprocess

import keras
import numpy as np
import pytest

from training.runs.checkpoints import restore_checkpoint, save_checkpoint
from training.runs.files import RunFiles


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_a_full_disk_is_an_error_and_the_epoch_before_stays(tmp_path):
    source = keras.Input((7,))
    model = keras.Model(source, keras.layers.Dense(211)(source))
    model.compile("adam", "mse")
    model.train_on_batch(np.ones((3, 7)), np.ones((3, 211)))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", tmp_path]).returncode:
        pytest.skip("this machine mounts nothing")
    try:
        files = RunFiles(tmp_path / "run")
        save_checkpoint(files, model, [{"epoch": 1}])
        with (tmp_path / "other").open("wb") as other:
            os.posix_fallocate(other.fileno(), 0, shutil.disk_usage(tmp_path).free)
        with pytest.raises(OSError, match="No space left") as error:
            save_checkpoint(files, model, [{"epoch": 1}, {"epoch": 2}])
        assert error.value.errno == errno.ENOSPC
        assert restore_checkpoint(files, model, writes=False) == [{"epoch": 1}]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
