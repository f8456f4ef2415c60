"""What a run learns from, measures progress on, and is scored on."""

import pytest

from training.config import Config
from training.data import corpus
from training.data.pair_files import CorpusError
from training.data.splits import load_split, load_training

LINES = [f"source {i} number\tcible {i}" for i in range(997)]


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(LINES))
    return path


def test_files_are_split_by_each_sources_text_whatever_is_added_to_them(pairs):
    config = Config(data=f"tsv:{pairs}", dev="0.1", test="0.2")
    train, dev = load_training(config)
    test, read = load_split(config, "test")
    assert read == {"data": f"tsv:{pairs}", "split": "test"}
    parts = [set(split.sources) for split in (train, dev, test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 997
    assert len(parts[1]) == pytest.approx(0.1 * 997, rel=0.3)
    assert len(parts[2]) == pytest.approx(0.2 * 997, rel=0.3)
    with pairs.open("a") as file:
        file.write("\none more\tun de plus\n")
    assert set(load_split(config, "dev")[0].sources) - {"one more"} == parts[1]
    assert set(load_split(config, "test")[0].sources) - {"one more"} == parts[2]


def test_lines_without_a_pair_are_counted_once(pairs):
    with pairs.open("a") as file:
        file.write("\nno target\t\n")
    config = Config(data=f"tsv:{pairs}", test="0.1")
    assert [split.unusable for split in load_training(config)] == [1, 0]
    assert load_split(config, "test")[0].unusable == 0


def test_where_nothing_is_said_one_in_fifty_is_held_out_as_ever(pairs):
    import hashlib

    config = Config(data=f"tsv:{pairs}")
    train, dev = load_training(config)
    held_out = [
        source
        for source, _, _ in (line.partition("\t") for line in LINES)
        if int(hashlib.sha1(source.encode()).hexdigest(), 16) % 50 == 0
    ]
    assert dev.sources == held_out
    assert len(train.sources) == 997 - len(held_out)
    scored, read = load_split(config, "dev", limit=5)
    assert read == {"data": f"tsv:{pairs}", "split": "dev"}
    assert len(scored.sources) == 5
    assert set(scored.sources) <= set(held_out)


def test_other_files_can_be_dev_and_test_and_then_nothing_is_held_out(pairs, tmp_path):
    other = tmp_path / "other.tsv"
    other.write_text("a\tb\nc\td\na\te\n")
    config = Config(data=f"tsv:{pairs}", dev=f"tsv:{other}", test=f"tsv:{other}")
    train, dev = load_training(config)
    assert len(train.sources) == 997
    assert dev.sources == ["a", "c"]
    assert dev.references == [["b", "e"], ["d"]]
    assert load_split(config, "test")[1] == {"data": f"tsv:{other}", "split": "all"}


def test_a_named_corpus_has_its_splits_and_can_have_other_ones(pairs):
    config = Config(data="phrasebook-en-fr", dev=f"tsv:{pairs}", train_limit=13)
    train, dev = load_training(config)
    assert (len(train.sources), len(dev.sources)) == (13, 997)
    assert load_split(config, "test", limit=7)[1] == {"data": "phrasebook-en-fr", "split": "test"}


@pytest.mark.parametrize(
    ("settings", "split", "said"),
    [
        ({}, "test", "has no split 'test'; it has train, dev. Say what to score with --data"),
        ({"test": "0.1"}, "foo", "no split 'foo'; it has train, dev, test"),
        ({"test": "tsv:/nowhere"}, "foo", "no split 'foo'; it has train, dev, test"),
        ({"dev": "1.5"}, "dev", "dev expected a SPEC or 0 < share < 1. Received: 1.5"),
        ({"dev": "nan"}, "dev", "dev expected a SPEC or 0 < share < 1. Received: nan"),
        ({"dev": "0.6", "test": "0.5"}, "dev", "expected shares below 1 in all"),
        ({"dev": "1e-9"}, "dev", "too few sentences"),
        ({"data": "phrasebook-en-fr", "dev": "0.1"}, "dev", "phrasebook-en-fr has splits"),
        ({"test": "klingon"}, "test", "Unknown corpus 'klingon'"),
    ],
)
def test_a_split_that_is_not_there_is_one_clear_line(pairs, settings, split, said):
    with pytest.raises(CorpusError) as caught:
        load_split(Config(**{"data": f"tsv:{pairs}", **settings}), split)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_test_set_that_cannot_be_read_is_found_out_before_training(pairs):
    with pytest.raises(CorpusError, match="Cannot read /nowhere"):
        load_training(Config(data=f"tsv:{pairs}", test="tsv:/nowhere"))


@pytest.mark.parametrize("form", ["tsv:{}/a,b.tsv", "multiref:{}/a", "parallel:{0}/a,{0}/b"])
def test_paths_become_absolute(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absolute = form.format(tmp_path)
    assert corpus.absolute(form.replace("{}/", "").replace("{0}/", "")) == absolute
    assert corpus.absolute(absolute) == absolute
    assert corpus.absolute("multi30k-en-de") == "multi30k-en-de"
