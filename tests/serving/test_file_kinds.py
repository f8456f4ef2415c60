"""A kind of files beside images: its declaration is all that client, batch and page need."""

from pathlib import Path

import pytest
import tensorflow as tf

from serving.client import InvalidRequestError, Reader, file_kinds
from serving.client.file_kinds import FileKind
from tests.serving.conftest import add_version, serving

MARK = b"#steps\n"
LARGEST = 100.0
OPTIONS = {"content-type": "application/octet-stream"}


def steps_of(example):
    content = example if isinstance(example, bytes) else Path(example).read_bytes()
    return [[float(cell) for cell in line.split()] for line in content.splitlines()[1:]]


def padded(rows):
    longest = max(map(len, rows))
    return {"steps": [row + [[0.0] * 3] * (longest - len(row)) for row in rows]}


STEPS = FileKind("steps", (".steps",), (MARK,), "steps", steps_of, padded, lambda row: row)


class Summing(tf.Module):
    """Says the sum of all numbers, and looks at the first step alone; large numbers are broken."""

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.float32, name="steps")])
    def read(self, steps):
        bad = tf.where(tf.reduce_max(steps, [1, 2]) > LARGEST)[:, 0]
        said = tf.strings.join(
            ["steps[", tf.strings.reduce_join(tf.strings.as_string(bad), 0), "] has too much"]
        )
        with tf.control_dependencies([tf.debugging.Assert(tf.size(bad) == 0, [said])]):
            total = tf.reduce_sum(steps, [1, 2])
        text = tf.strings.as_string(total, precision=1)
        places = tf.one_hot(tf.zeros_like(total, tf.int32), tf.shape(steps)[1])
        return {
            "text": text,
            "score": -total,
            "tokens": text[:, None],
            "attention_weights": places[:, None, None],
        }


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    root, module = tmp_path_factory.mktemp("steps"), Summing()
    names = ("read", "regions", "serving_default")
    tf.saved_model.save(module, str(root / "made"), signatures=dict.fromkeys(names, module.read))
    add_version(root / "made", root / "sum", 1)
    return root / "sum"


@pytest.fixture(scope="module")
def target(model):
    with serving("--model_name=sum", f"--model_base_path={model}") as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(autouse=True)
def a_kind_more(monkeypatch):
    monkeypatch.setattr(file_kinds, "KINDS", (*file_kinds.KINDS, STEPS))


@pytest.fixture
def folder(tmp_path, rng):
    """Files of several lengths, of which the second is broken, and the texts of the others."""
    path, sums = tmp_path / "walks", {}
    path.mkdir()
    for number, length in enumerate((3, 1, 5, 2)):
        steps = rng.integers(0, 9, (length, 3)) / 2 if number != 1 else rng.random((1, 3)) + 999
        lines = "".join(" ".join(map(str, step)) + "\n" for step in steps)
        (path / f"{number}.steps").write_bytes(MARK + lines.encode())
        sums[f"{number}.steps"] = f"{steps.sum():.1f}"
    return path, {name: text for name, text in sums.items() if name != "1.steps"}


def test_the_reader_asks_by_the_kind_of_its_files(target, folder):
    path, sums = folder
    files = sorted(path.iterdir())
    with Reader(target, "sum") as reader:
        found = reader.regions(files, keep_errors=True)
        with pytest.raises(InvalidRequestError, match=r"^steps 2 \(.*1\.steps\)"):
            reader.read(files)
        (alone,) = reader.read([files[2].read_bytes()])
        assert reader.read([]) == []
    assert isinstance(found.pop(1), InvalidRequestError)
    assert [one.text for one in found] == list(sums.values())
    assert [one.attention_weights[0][0][0] for one in found] == [1, 1, 1]
    assert alone.text == sums["2.steps"]
