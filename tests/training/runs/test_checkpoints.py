"""The state of a training that its run directory keeps, and what a damaged run is."""

import errno
import os
import shutil
import subprocess
import warnings
from pathlib import Path
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from serving.export.__main__ import main as export
from training import evaluate, train, translate
from training.command.errors import RunError, UserError, enough_memory
from training.runs import checkpoints
from training.runs.checkpoints import load_average, restore_checkpoint, save_best, save_checkpoint
from training.runs.files import RunFiles
from training.runs.run import load_best


def make_model():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dropout(0.5)(inputs)))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def filled(model, value):
    for weight in model.weights:
        weight.assign(keras.ops.full(weight.shape, value))
    return model


def assert_filled(model, value):
    for weight in model.weights:
        np.testing.assert_array_equal(weight, np.full(weight.shape, value))


def records(count):
    return [{"epoch": epoch, "loss": 1.0} for epoch in range(1, count + 1)]


@pytest.fixture
def files(tmp_path):
    """A run with checkpoints of epochs 1 to 3, whose weights are all 1, 2 and 3."""
    files, model = RunFiles(tmp_path), make_model()
    for epoch in (1, 2, 3):
        save_checkpoint(files, filled(model, epoch), records(epoch))
    return files


def test_the_last_two_are_kept_and_the_last_is_restored(files):
    assert list(files.all_checkpoints()) == [2, 3]
    model = make_model()
    assert restore_checkpoint(files, model) == records(3)
    assert_filled(model, 3.0)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("training.weights.h5", "changed"), ("training.weights.h5", "cut"), ("seeds.npz", "cut")),
        *(("seeds.npz", "gone"), ("progress.json", "changed"), ("progress.json", "gone")),
        *(("progress.json", text) for text in ("[]", '{"sha256": []}', '{"sha256": {}}')),
    ],
)
def test_where_the_last_is_damaged_the_one_before_is_restored(files, name, damage, capsys):
    file = files.checkpoint(3) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged = {"changed": content, "cut": content[: len(content) // 2]}
    file.write_bytes(damaged.get(damage, damage.encode()))
    if damage == "gone":
        file.unlink()
    model = make_model()
    assert restore_checkpoint(files, model) == records(2)
    assert_filled(model, 2.0)
    warning = capsys.readouterr().err
    assert warning.startswith(f"Warning: {files.checkpoint(3)} is damaged")
    assert warning.count("\n") == 1


def test_where_all_are_damaged_nothing_is_made_up(files, capsys):
    for folder in files.all_checkpoints().values():
        (folder / "training.weights.h5").write_bytes(b"")
    with pytest.raises(RunError, match=r"no checkpoint in .* can be read"):
        restore_checkpoint(files, make_model())


def flip(file, place):
    """Change the lowest bit of a byte at a place, a share of the file: a weight, or a letter."""
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(content)


def test_damaged_weights_are_not_averaged(tmp_path):
    files, model = RunFiles(tmp_path), make_model()
    for epoch in (1, 2):
        checkpoints.save_recent(files, epoch, filled(model, epoch), 2)
    load_average(files, model, [1, 2])
    assert_filled(model, 1.5)
    flip(files.recent_weights(1), 0.999)
    with pytest.raises(RunError, match=r"recent/epoch-001.weights.h5 is damaged"):
        load_average(files, model, [1, 2])


def test_a_stop_between_digest_and_weights_leaves_a_run_that_can_be_read(tmp_path, monkeypatch):
    files, model, replace = RunFiles(tmp_path), make_model(), Path.replace

    def stop(path, target):
        if Path(target).name == "best.weights.h5":
            raise KeyboardInterrupt
        return replace(path, target)

    for value in (1, 2, 3):
        save_best(files, filled(model, value))
        files.check(files.best)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            save_best(files, filled(model, 4))
    load_best(files, model)
    assert_filled(model, 3.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_never_written(files, value):
    model = filled(make_model(), 4)
    save_best(files, model)
    best = files.best.read_bytes()
    kernel = model.weights[0]
    kernel.assign(np.where(np.arange(6).reshape(3, 2) == 5, value, 1.0))
    for save, *rest in ((save_checkpoint, records(4)), (save_best,)):
        with pytest.raises(RunError, match=r"^1 values of .*kernel are not finite"):
            save(files, model, *rest)
    assert list(files.all_checkpoints()) == [2, 3]
    assert files.best.read_bytes() == best


def test_dropout_draws_on_where_it_had_got_to(tmp_path):
    files, model = RunFiles(tmp_path), make_model()
    ones = np.ones((5, 3), "float32")
    model(ones, training=True)
    save_checkpoint(files, model, records(1))
    other = make_model()
    restore_checkpoint(files, other)
    draw = [
        [keras.ops.convert_to_numpy(m(ones, training=True)) for _ in "ab"] for m in (model, other)
    ]
    wanted, found = draw
    np.testing.assert_array_equal(found, wanted)
    assert not np.array_equal(*wanted)


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


KEPT = ("best.weights.h5", "source.tokenizer", "target.tokenizer")


@pytest.fixture
def folder(tiny_run, tmp_path, monkeypatch):
    shutil.copytree(tiny_run.path, tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("one\n")
    return tmp_path


PRESET = ["--preset", "new/config.toml"]
COMMANDS = {
    "evaluate": lambda run: evaluate.main(["--run", run, "--limit", "5"]),
    "translate": lambda run: translate.main(["--run", run, "in.txt"]),
    "export": lambda run: export(["--run", run, "--output", "models/tiny"]),
    "init": lambda run: train.main([*PRESET, "--init", run, "--output", "other"]),
}


@pytest.mark.parametrize(
    ("command", "name"),
    [*(("evaluate", name) for name in KEPT), *((command, KEPT[1]) for command in COMMANDS)],
)
def test_a_flipped_bit_is_found_before_the_run_is_used(folder, command, name):
    flip(folder / "new" / name, 0.75)
    with pytest.raises(UserError, match=rf"new/{name} is damaged"):
        COMMANDS[command]("new")
    assert not (folder / "models").exists()


UNREAD, EMPTY = "cannot read |is damaged", "the configuration .* is empty"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *(("history.json", text, UNREAD) for text in ("", "{}", '[{"loss": 1}]', "\0\0")),
        *(("config.toml", text, EMPTY) for text in ("", "\n# nothing\n")),
    ],
)
def test_a_damaged_file_is_a_line_before_anything_is_exported(folder, name, content, said):
    (folder / "new" / name).write_text(content)
    with pytest.raises(UserError, match=said) as error:
        COMMANDS["export"]("new")
    assert f"new/{name}" in str(error.value)
    assert not (folder / "models").exists()


def test_weights_of_another_model_are_one_line_without_warnings(folder):
    config = folder / "new" / "config.toml"
    lines = config.read_text().splitlines()
    config.write_text("\n".join(line for line in lines if "encoder_units" not in line))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match=r"cannot read new/best.weights.h5 as the weights of"):
            COMMANDS["evaluate"]("new")


def test_a_model_too_large_for_the_memory_is_one_line(folder, monkeypatch):
    message = "OOM when allocating tensor with shape[5,3000000000] and type float on\nCPU:0"

    full = Mock(side_effect=tf.errors.ResourceExhaustedError(None, None, message))
    monkeypatch.setattr("training.model.seq2seq.build_seq2seq", full)
    said = r"shape\[5,3000000000\]\. Use a smaller model: [a-z]+_units is \d+$"
    with pytest.raises(UserError, match=said):
        COMMANDS["evaluate"]("new")


@pytest.mark.parametrize("kind", [ValueError, MemoryError])
def test_memory_that_numpy_does_not_get_is_one_line(kind):
    message = "Unable to allocate 745. GiB for an array with shape (100000000000,)"
    refused = pytest.raises(UserError, match=r"^Out of memory\. Use a smaller model$")
    with refused, enough_memory("Use a smaller model"):
        raise kind(message)
