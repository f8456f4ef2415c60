"""Texts become ids of a run through the disk: the same as from texts in memory."""

import functools
import random

import numpy as np
import pytest

from tests.training import in_memory
from training.bulk import run as bulk
from training.bulk import streaming
from training.bulk.lines import blocks
from training.bulk.streaming import stream
from training.config.load import override
from training.config.schema import Config
from training.data import corpus
from training.data.pair_files import CorpusError, fingerprint
from training.data.token_files import read_sides
from training.runs.begin import open_run
from training.runs.files import RunFiles
from training.sources.batches import make_batches

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


def epochs(batches):
    return [
        [inputs["source"], inputs["target"], labels]
        for number in (0, 3)
        for inputs, labels in batches.epoch(number)
    ]


COPY = "copy=true copy_hidden=0.5 source_tokenizer=words target_tokenizer=words"


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "dev=0.1 test=0.2",
        "dev=tsv:dev.tsv test=0.1",
        "source_tokenizer=words target_tokenizer=characters",
        "data=parallel:pairs.s,pairs.t",
        "data=multiref:pairs.tsv dev=0.1",
        "data=multiref:pairs.tsv train_limit=53 seed=3",
        "train_limit=97 extra_data=multiref:pairs.tsv",
        "data=phrasebook-en-fr train_limit=211 seed=4 extra_data=tsv:pairs.tsv",
        f"{COPY} data=phrasebook-en-fr train_limit=211",
        f"{COPY} data=multiref:pairs.tsv train_limit=101 extra_data=tsv:dev.tsv",
    ],
)
def test_a_run_is_that_of_texts_in_memory(folder, settings, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(streaming, "blocks", functools.partial(blocks, size=3001))
    config = override(Config(data="tsv:pairs.tsv"), f"{SETTINGS} {settings}".split())
    files = RunFiles(folder)
    found = open_run(files, config, streamed=stream(config, files.streamed))
    data, dev = in_memory.load_training(config)
    sides = in_memory.make_sides(config, data)
    assert found.source.tokenizer.state() == sides[0].tokenizer.state()
    assert found.target.state() == sides[1].state()
    assert found.origin.corpus == fingerprint(data.pairs(), dev.pairs())
    assert (found.dev.sources, found.dev.references) == (dev.sources, dev.references)
    held = make_batches(config, dev, *sides, training=False)
    train = in_memory.train_batches(config, data, sides)
    for ours, plain in ((found.pairs, train), (found.dev_pairs, held)):
        assert ours.statistics == plain.statistics
        for one, other in zip(epochs(ours), epochs(plain), strict=True):
            assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("size", [0, 1 << 30])
def test_large_files_are_read_by_several_processes(folder, size, monkeypatch):
    monkeypatch.setattr(streaming, "SMALL", size)
    config = override(Config(data=f"tsv:{folder / 'pairs.tsv'}"), SETTINGS.split())
    found = stream(config, folder / "out")
    rows, _ = read_sides(folder / "out", "train", found.said)
    assert len(rows.lengths) + len(found.dev.pairs()) == 432
    assert found.unusable == 1
    assert not (folder / "out" / "work").exists()


def test_a_later_run_in_the_same_place_has_its_own_tokenizers(folder):
    found = {}
    for name, size in (("one", 70), ("one", 50), ("other", 50)):
        config = override(
            Config(data=f"tsv:{folder / 'pairs.tsv'}"),
            [*SETTINGS.split(), f"source_vocab_size={size}"],
        )
        said = stream(config, folder / name).said
        found[name], _ = read_sides(folder / name, "train", said)
    assert np.array_equal(found["one"].values, found["other"].values)


def test_what_is_known_is_not_written_anew(folder):
    config = override(Config(data=f"tsv:{folder / 'pairs.tsv'}"), SETTINGS.split())
    asked = []
    first = stream(config, folder / "out")
    again = stream(config, folder / "again", known=lambda found: asked.append(found) or True)
    assert (again.said, again.dev) == (None, first.dev)
    assert asked == [first.fingerprint] == [again.fingerprint]
    assert not list((folder / "again").glob("*.ids"))


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"one column\n" * 9, b"a\tb\n" * 3 + b"\xff\tb\n", None],
)
@pytest.mark.parametrize("form", ["tsv", "multiref"])
def test_a_wrong_file_is_told_as_by_the_reader_of_whole_files(folder, content, form):
    file = folder / "wrong.tsv"
    if content is not None:
        file.write_bytes(content)
    config = override(Config(data=f"{form}:{file}"), SETTINGS.split())
    with pytest.raises(CorpusError) as whole:
        corpus.load(config.data, "train")
    with pytest.raises(CorpusError) as error:
        bulk.prepare_run(config, folder / "run")
    assert str(error.value) == str(whole.value)
    assert str(file) in str(error.value)
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [("tsv:few.tsv", "few.tsv has too few sentences"), ("tsv:-", "read again. Received: tsv:-")],
)
def test_what_no_run_can_begin_with_is_one_line(folder, data, said, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "few.tsv").write_text("a\tb\n")
    with pytest.raises(CorpusError, match=said):
        stream(override(Config(data=data), SETTINGS.split()), folder / "out")


def test_lines_of_two_files_without_a_text_are_counted(folder):
    for name in "st":
        file = folder / f"pairs.{name}"
        file.write_text(f"{'a' if name == 's' else ''}\n" + file.read_text())
    config = override(
        Config(data=f"parallel:{folder / 'pairs.s'},{folder / 'pairs.t'}"), SETTINGS.split()
    )
    assert stream(config, folder / "out").unusable == 1


@pytest.mark.parametrize("settings", ["source=image data=digits", "data=prepared:corpus"])
def test_what_is_no_text_is_not_read_so(tmp_path, settings):
    config = override(Config(), settings.split())
    assert stream(config, tmp_path / "out") is None
    assert not (tmp_path / "out").exists()
