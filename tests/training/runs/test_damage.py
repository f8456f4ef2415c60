"""A damaged run: one line that names the file, and no figures of other weights."""

import shutil
import warnings
from unittest.mock import Mock

import pytest
import tensorflow as tf

from serving.export.__main__ import main as export
from training import evaluate, train, translate
from training.command.errors import UserError, enough_memory

KEPT = ("best.weights.h5", "source.tokenizer", "target.tokenizer")


@pytest.fixture
def folder(tiny_run, tmp_path, monkeypatch):
    shutil.copytree(tiny_run.path, tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("one\n")
    return tmp_path


def flip(file):
    """Change the lowest bit of a byte, three quarters down: a weight, or a letter."""
    content = bytearray(file.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    file.write_bytes(content)


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
    flip(folder / "new" / name)
    with pytest.raises(UserError, match=rf"new/{name} is damaged"):
        COMMANDS[command]("new")
    assert not (folder / "models").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *(
            ("history.json", text, "cannot read |is damaged")
            for text in ("", "{}", '[{"loss": 1}]', "\0\0")
        ),
        *(("config.toml", text, "the configuration .* is empty") for text in ("", "\n# nothing\n")),
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
    text = config.read_text()
    config.write_text("\n".join(line for line in text.splitlines() if "encoder_units" not in line))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match=r"cannot read new/best.weights.h5 as the weights of"):
            COMMANDS["evaluate"]("new")


def test_a_model_too_large_for_the_memory_is_one_line(folder, monkeypatch):
    message = "OOM when allocating tensor with shape[5,3000000000] and type float on\nCPU:0"

    full = Mock(side_effect=tf.errors.ResourceExhaustedError(None, None, message))
    monkeypatch.setattr("training.model.seq2seq.build_seq2seq", full)
    with pytest.raises(
        UserError, match=r"shape\[5,3000000000\]\. Use a smaller model: [a-z]+_units is \d+$"
    ):
        COMMANDS["evaluate"]("new")


@pytest.mark.parametrize("kind", [ValueError, MemoryError])
def test_memory_that_numpy_does_not_get_is_one_line(kind):
    message = "Unable to allocate 745. GiB for an array with shape (100000000000,)"
    with (
        pytest.raises(UserError, match=r"^Out of memory\. Use a smaller model$"),
        enough_memory("Use a smaller model"),
    ):
        raise kind(message)
