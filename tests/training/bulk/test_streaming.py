"""Files of pairs become a run's ids through the disk: the same run as from texts in memory."""

import json
import random

import pytest

from training.bulk import run as bulk
from training.bulk.streaming import stream
from training.command.errors import UserError
from training.config.load import override
from training.config.schema import Config
from training.runs.files import RunFiles

SETTINGS = "source_vocab_size=70 target_vocab_size=60 encoder_units=3 decoder_units=3 batch_size=9 "
SETTINGS += "embedding_size=3 readout_units=3 attention_units=3"


@pytest.fixture
def folder(tmp_path):
    rng = random.Random(5)
    letters = "abcdefghé"
    words = ["".join(rng.choices(letters, k=rng.randint(1, 5))) for _ in range(40)]
    sides = [[" ".join(rng.choices(words, k=rng.randint(1, 6))) for _ in range(431)] for _ in "st"]
    sides[0][7] = sides[0][3]
    lines = ["\t".join(pair) for pair in zip(*sides, strict=True)]
    lines[5:5] = ["", "no pair", "  spaced   out \tand \u0065\u0301 decomposed\tmore"]
    (tmp_path / "pairs.tsv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("a b\tb a\na b\tc\n", encoding="utf-8")
    for name, side in zip("st", sides, strict=True):
        (tmp_path / f"pairs.{name}").write_text("\n".join(side) + "\n", encoding="utf-8")
    return tmp_path


def contents(run):
    found = {path.relative_to(run).as_posix(): path for path in run.rglob("*") if path.is_file()}
    read = {name: path.read_bytes() for name, path in found.items() if name != ".lock"}
    origin = json.loads(read.pop("origin.json"))
    return read, {key: value for key, value in origin.items() if key not in ("begun", "command")}


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "dev=0.1 test=0.2",
        "dev=tsv:dev.tsv test=0.1",
        "source_tokenizer=words target_tokenizer=characters",
        "data=parallel:pairs.s,pairs.t",
    ],
)
def test_a_run_is_that_of_texts_in_memory(folder, settings, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    config = override(Config(data="tsv:pairs.tsv"), f"{SETTINGS} {settings}".split())
    with monkeypatch.context() as patch:
        patch.setattr(bulk, "stream", lambda config, folder: None)
        counts = bulk.prepare_run(config, folder / "memory")
    said = capsys.readouterr().out
    monkeypatch.setattr("training.data.splits.load_training", None)  # which nothing asks
    assert bulk.prepare_run(config, folder / "streamed") == counts
    found, wanted = contents(folder / "streamed"), contents(folder / "memory")
    assert [name for name, content in found[0].items() if content != wanted[0].get(name)] == []
    assert found == wanted
    assert capsys.readouterr().out == said.replace("Training the tokenizers …\n", "")


@pytest.mark.parametrize("size", [0, 1 << 30])
def test_large_files_are_read_by_several_processes(folder, size, monkeypatch):
    monkeypatch.setattr("training.bulk.streaming.SMALL", size)
    config = override(Config(data=f"tsv:{folder / 'pairs.tsv'}"), SETTINGS.split())
    found = stream(config, folder / "out")
    assert found.count + found.unusable == 432 - len(found.dev.pairs()) + 1
    assert not (folder / "out" / "work").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"one column\n" * 9, b"a\tb\n" * 3 + b"\xff\tb\n", b"a\tb\n", None],
)
def test_a_wrong_file_is_told_as_it_always_was(folder, content, monkeypatch):
    file = folder / "wrong.tsv"
    if content is not None:
        file.write_bytes(content)
    config = override(Config(data=f"tsv:{file}"), SETTINGS.split())
    messages = []
    for number in range(2):
        with pytest.raises(UserError) as error:
            bulk.prepare_run(config, folder / f"run{number}")
        messages.append(str(error.value))
        monkeypatch.setattr(bulk, "stream", lambda config, folder: None)
    assert messages[0] == messages[1]
    assert str(file) in messages[0]
    assert not RunFiles(folder / "run0").streamed.exists()


@pytest.mark.parametrize(
    "settings",
    [
        ["train_limit=9"],
        ["data=cmudict"],
        ["data=multiref:pairs.tsv"],
        ["copy=true", "source_tokenizer=words", "target_tokenizer=words"],
        ["extra_data=tsv:dev.tsv"],
    ],
    ids=str,
)
def test_what_is_a_part_or_several_is_read_whole(folder, settings):
    config = override(Config(data=f"tsv:{folder / 'pairs.tsv'}"), settings)
    assert stream(config, folder / "out") is None
    assert not (folder / "out").exists()
