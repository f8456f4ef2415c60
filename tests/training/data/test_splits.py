"""The splits that a run learns from, measures progress on, and is scored on."""

import hashlib
import re
from dataclasses import replace

import pytest

from tests.training.data.files import spelled, write
from training.command.errors import ConfigError
from training.command.options import Parser
from training.config.schema import Config
from training.data.read import texts as corpus
from training.data.read._specs import CorpusError, Spec
from training.data.read.named import _corpora as corpora
from training.data.read.texts import Texts, check_split, dev_share, load_split, read_texts
from training.data.tokens._encoding import Tokenizing, write_tokens
from training.presets._arguments import add_configuration
from training.presets._options import configuration

CUT = {"tokenizer": "characters", "vocab_size": 9999}
CUT = {f"{side}_{key}": value for side in ("source", "target") for key, value in CUT.items()}
LINES = [f"source {i} number\tcible {i}" for i in range(997)]


@pytest.fixture
def pairs(tmp_path):
    return write(tmp_path / "pairs.tsv", "\n".join(LINES))


def append(path, text):
    path.write_text(path.read_text() + text)


def learned(config, folder):
    """The pairs to learn from, spelled by their ids, and what else was read."""
    config = replace(config, **CUT)
    prepared = write_tokens(folder, read_texts(Texts.of(config)), Tokenizing.of(config))
    return spelled(prepared, rows=prepared.rows(config.train_limit, config.seed)), prepared


def split_of(config, split):
    return load_split(Texts.of(config), split)[0]


def test_files_are_split_by_each_sources_text_whatever_is_added_to_them(pairs, tmp_path):
    append(pairs, "\nno target\t\n")
    config = Config(data=f"tsv:{pairs}", dev="0.1", test="0.2")
    train, ids = learned(config, tmp_path / "ids")
    dev, (test, read) = ids.texts("dev"), load_split(Texts.of(config), "test")
    assert read == {"data": f"tsv:{pairs}", "split": "test"}
    assert [ids.manifest.unusable, dev.unusable, test.unusable] == [1, 0, 0]  # counted once
    parts = [{source for source, _ in train}, set(dev.sources), set(test.sources)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 997
    assert [len(part) / 997 for part in parts[1:]] == pytest.approx([0.1, 0.2], rel=0.3)
    append(pairs, "\none more\tun de plus\n")
    for split, part in zip(("dev", "test"), parts[1:], strict=True):
        assert set(split_of(config, split).sources) - {"one more"} == part


@pytest.mark.parametrize(("count", "least", "most"), [(36, 1, 10), (200, 8, 35), (2_003, 160, 245)])
def test_dev_is_large_enough_where_no_share_is_chosen(tmp_path, count, least, most):
    """By a loop over hashes; train, as evaluation reads it, is what a run learns from."""
    path = write(tmp_path / "pairs.tsv", [(f"source {i}", f"cible {i}") for i in range(count)])
    numbers = [int(hashlib.sha1(f"source {i}".encode()).hexdigest(), 16) for i in range(count)]
    places = [(n % 50 + n // 50 % 10**6 / 10**6) / 50 for n in numbers]
    expected = [f"source {i}" for i, place in enumerate(places) if place < 0.1]
    assert least <= len(expected) <= most
    config = Config(data=f"tsv:{path}")
    train, prepared = learned(config, tmp_path / "ids")
    assert prepared.texts("dev").sources == split_of(config, "dev").sources == expected
    assert split_of(config, "train").pairs() == train
    assert len(train) + len(expected) == count  # nothing is lost
    sample, read = load_split(Texts.of(config), "dev", limit=1)
    assert read == {"data": f"tsv:{path}", "split": "dev"}
    assert set(sample.sources) < {*expected}


def test_shares_of_dev():
    lines = [0, 36, 200, 2_000, 3_000, 10_000, 20_000, 50_000, 100_000, 2_000_000]
    expected = [0, 3.6, 20, 200, 300, 300, 400, 1_000, 1_000, 1_000]
    assert [dev_share(count) * count for count in lines] == pytest.approx(expected)


def test_a_file_is_surveyed_and_its_notes_are_told_once(tmp_path, capsys, monkeypatch):
    """A command chooses settings by the path as typed, and learns from the absolute one."""
    rows = [("source", "target"), *((f"a {i}", f"ein {i}") for i in range(97))]
    path = write(tmp_path / "pairs.tsv", rows)
    monkeypatch.chdir(tmp_path)
    surveyed, real = [], corpus.survey
    monkeypatch.setattr(corpus, "survey", lambda *each: surveyed.append(each[0]) or real(*each))
    assert corpus.sample_pairs("tsv:pairs.tsv")[0] == 98
    learned(Config(data=f"tsv:{path}"), tmp_path / "ids")
    assert capsys.readouterr().out.count("line 1") == 1
    assert [*map(str, surveyed)] == [f"tsv:{path}"]
    write(path, rows[:1])  # another file now
    assert corpus.sample_pairs("tsv:pairs.tsv")[0] == 1


def test_other_files_can_be_dev_and_test_and_then_nothing_is_held_out(pairs, tmp_path, capsys):
    other = write(tmp_path / "other.tsv", "a\tb\nc\td\na\te\n")
    append(pairs, "\na\tin both")  # of the data nothing is left out
    config = Config(data=f"tsv:{pairs}", dev=f"tsv:{other}", test=f"tsv:{other}")
    train, ids = learned(config, tmp_path / "ids")
    assert len(train) == 998
    said = f"Warning: tsv:{pairs}: the sources of 1 pairs are also in dev or test"
    assert said in capsys.readouterr().out
    assert ids.texts("dev").sources == ["a", "c"]
    assert ids.texts("dev").references == [["b", "e"], ["d"]]
    assert load_split(Texts.of(config), "test")[1] == {"data": f"tsv:{other}", "split": "all"}
    config = Config(data="phrasebook-en-fr", dev=f"tsv:{pairs}", train_limit=13)
    train, ids = learned(config, tmp_path / "named")
    assert (len(train), len(ids.texts("dev").sources)) == (13, 998)
    read = load_split(Texts.of(config), "test", limit=7)[1]
    assert read == {"data": "phrasebook-en-fr", "split": "test"}


def test_extra_data_is_learned_from_but_for_sources_that_are_measured_on(pairs, tmp_path):
    base = Config(data=f"tsv:{pairs}", dev="0.1", test="0.2", train_limit=31)
    alone, ids = learned(base, tmp_path / "alone")
    dev, test = ids.texts("dev"), split_of(base, "test")
    first = f"new 1\tneu 1\n{dev.sources[0]}\tneu\nonly a source\t\nnew 2\tneu 2\n"
    second = f"{test.sources[0]}\tneu\n{alone[0][0]}\tneu\nnew 1\tneu 1\n"
    files = write(tmp_path / "first.tsv", first), write(tmp_path / "second.tsv", second)
    more = replace(base, extra_data="  ".join(f"tsv:{file}" for file in files))
    train, beside = learned(more, tmp_path / "beside")
    added = [("new 1", "neu 1"), ("new 2", "neu 2"), (alone[0][0], "neu"), ("new 1", "neu 1")]
    assert train == alone + added
    assert beside.manifest.unusable == ids.manifest.unusable + 1
    assert (beside.texts("dev"), split_of(more, "test")) == (dev, test)


def test_extra_data_is_written_as_the_data_is(pairs, tmp_path, monkeypatch):
    for split, line in (("train", "Hi.\t你好。"), ("dev", "Go!\t好。"), ("test", "No.\t不。")):
        write(tmp_path / f"tatoeba-en-zh/{split}.tsv.gz", f"{line}\n")
    monkeypatch.setenv(corpora.DATA_VARIABLE, str(tmp_path))
    extra = write(tmp_path / "extra.tsv", "The day after tomorrow.\t後天。\nNo.\t否。\n")
    config = Config(data="tatoeba-en-zh", extra_data=f"tsv:{extra}")
    pairs_of_both = [("Hi.", "你好。"), ("The day after tomorrow.", "后天。")]
    assert learned(config, tmp_path / "ids")[0] == pairs_of_both
    config = Config(data=f"tsv:{pairs}", extra_data="tatoeba-en-zh")  # its training split
    assert learned(config, tmp_path / "beside")[0][-1] == ("Hi.", "你好。")


@pytest.mark.parametrize(
    ("settings", "split", "message"),
    [
        ({}, "test", "has no split 'test', only train, dev. Score dev"),
        ({"test": "0.1"}, "foo", "no split 'foo', only train, dev, test"),
        ({"test": "tsv:/nowhere"}, "foo", "no split 'foo', only train, dev, test"),
        ({"dev": "1.5"}, "dev", "or data, such as tsv:dev.tsv. You gave: 1.5"),
        ({"dev": "nan"}, "dev", "or data, such as tsv:dev.tsv. You gave: nan"),
        ({"test": "5%"}, "test", "Unknown corpus '5%': write 0.05, a share of the"),
        ({"dev": "0.6", "test": "0.5"}, "dev", "need shares below 1 in total"),
        ({"dev": "1e-9"}, "dev", "too few different sources"),
        ({"data": "phrasebook-en-fr", "dev": "0.1"}, "dev", "phrasebook-en-fr has its own dev set"),
        ({"test": "klingon"}, "test", "Unknown corpus 'klingon'"),
    ],
)
def test_a_split_that_is_not_there_is_one_clear_line(pairs, settings, split, message):
    with pytest.raises(CorpusError, match=re.escape(message)):
        split_of(Config(**{"data": f"tsv:{pairs}", **settings}), split)


def test_a_split_that_a_run_has_not_is_told_before_its_files_are_read():
    nowhere = Spec.of("tsv:/nowhere")
    check_split(texts := Texts(nowhere, test=0.1), "test")
    for wrong, split in ((texts, "foo"), (Texts(nowhere), "test")):
        with pytest.raises(CorpusError, match=f"no split '{split}'"):
            check_split(wrong, split)


@pytest.mark.parametrize("form", ["tsv:{}/a,b.tsv", "multiref:{}/a", "parallel:{0}/a,{0}/b"])
def test_paths_become_absolute(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absolute = form.format(tmp_path)
    for given in (form.replace("{}/", "").replace("{0}/", ""), absolute):
        assert Spec.of(given).absolute() == absolute
    assert Spec.of("multi30k-en-de").absolute() == "multi30k-en-de"


def test_files_of_extra_data_are_named_by_absolute_paths_without_spaces(tmp_path, monkeypatch):
    parser = Parser()
    add_configuration(parser)
    words = ["--preset", "multi30k-en-de", "--set", "extra_data=tatoeba-en-de tsv:small.tsv"]
    monkeypatch.chdir(write(tmp_path / "small.tsv", "").parent)
    extra = configuration(parser.parse_args(words)).extra_data
    assert extra == f"tatoeba-en-de tsv:{tmp_path}/small.tsv"
    monkeypatch.chdir(write(tmp_path / "a b" / "small.tsv", "").parent)
    with pytest.raises(ConfigError, match=r"extra_data needs paths without spaces, but one is "):
        configuration(parser.parse_args(words))
