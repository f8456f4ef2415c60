"""A prepared corpus, held to the same text read as it stands."""

import functools
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training import in_memory
from tests.training.conftest import tiny_config
from training import prepare
from training.bulk import corpora
from training.bulk.cleaning import Filters
from training.bulk.corpora import Plan, prepare_corpus
from training.bulk.lines import blocks
from training.bulk.workers import workers
from training.command.errors import ConfigError, UserError
from training.config.load import override
from training.data.batches import text_batches
from training.data.corpus import load
from training.data.pair_files import CorpusError
from training.data.plan import Batching
from training.data.prepared import Prepared, is_prepared
from training.data.splits import load_prepared
from training.data.tokenizers import load_tokenizer
from training.data.tokenizing import tokenize
from training.runs.begin import make_sides
from training.sources.batches import make_batches

HERE = Plan(Filters(), processes=0)


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch):
    monkeypatch.setattr(corpora, "blocks", functools.partial(blocks, size=7001))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Pairs in a file, with lines that hold none, with duplicates and sources said in two ways."""
    pairs = load("phrasebook-en-fr", "train", limit=503, seed=3).pairs()
    lines = [f"{source}\t{target}\n" for source, target in pairs]
    lines[100:100] = ["\n", "alone\n", "\tseul\n", lines[7], "  Twice  said.\tUne fois.\tmore\n"]
    lines += ["Twice said.\tDeux  fois.\n"]
    path = tmp_path_factory.mktemp("text") / "pairs.tsv"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def configured(path, *settings):
    pieces = [f"{side}_tokenizer=sentencepiece" for side in ("source", "target")]
    return tiny_config("train_limit=0", f"data=tsv:{path}", *pieces, *settings)


def batches_of(config):
    """Those of three epochs and of the dev set, what they hold, and the dev set."""
    if is_prepared(config.data):
        data, dev = load_prepared(config)
        sides = make_sides(config, data)
        train = text_batches(Batching.of(config), *data.sides(), training=True)
    else:
        data, dev = in_memory.load_training(config)
        sides = in_memory.make_sides(config, data)
        train = in_memory.train_batches(config, data, sides)
    held = make_batches(config, dev, *sides, training=False)
    epochs = [list(train.epoch(number)) for number in (0, 1, 5)]
    return train.statistics, [*epochs, list(held.epoch())], dev


def assert_same(plain, prepared):
    assert plain[0] == prepared[0]
    assert plain[2].sources == prepared[2].sources
    assert plain[2].references == prepared[2].references
    for one, other in zip(plain[1], prepared[1], strict=True):
        for (inputs, labels), (their_inputs, their_labels) in zip(one, other, strict=True):
            for mine, theirs in (
                (inputs["source"], their_inputs["source"]),
                (inputs["target"], their_inputs["target"]),
                (labels, their_labels),
            ):
                assert mine.dtype == theirs.dtype == np.int32
                np.testing.assert_array_equal(mine, theirs)


def read_prepared(config, folder):
    return override(config, [f"data=prepared:{folder}", "dev=", "test="])


@pytest.mark.parametrize(
    "settings",
    [
        ("batch_size=7", "join=0.4"),
        ("batch_size=13", "seed=3", "max_target_length=9", "length_multiple=4"),
        ("batch_tokens=99",),
        ("source_tokenizer=words", "target_tokenizer=characters", "dev=0.1", "test=0.2"),
    ],
    ids=str,
)
def test_batches_are_those_of_the_texts(text, tmp_path, settings):
    config = configured(text, *settings)
    manifest = prepare_corpus(tmp_path / "c", config, HERE)
    assert_same(batches_of(config), batches_of(read_prepared(config, tmp_path / "c")))
    assert manifest["left_out"] == {"blank": 1, "no pair": 2}
    assert manifest["unusable"] == 2
    assert manifest["lines"] == 509
    assert manifest["pairs"] + manifest["held_out"] == 506
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c"]  # nothing is left beside it


def test_two_processes_and_many_blocks_write_what_one_writes(text, tmp_path):
    config = configured(text)
    prepare_corpus(tmp_path / "one", config, HERE)
    prepare_corpus(tmp_path / "two", config, Plan(Filters(), processes=2))
    one, two = (Prepared(f"prepared:{tmp_path / name}").manifest for name in ("one", "two"))
    assert one["sha256"] == two["sha256"]
    for name, digest in one["sha256"].items():
        assert hashlib.sha256((tmp_path / "two" / name).read_bytes()).hexdigest() == digest


def test_a_limit_draws_the_pairs_that_it_draws_of_texts(text, tmp_path):
    config = configured(text)
    prepare_corpus(tmp_path / "c", config, HERE)
    drawn, _ = in_memory.load_training(override(config, ["train_limit=101", "seed=5"]))
    prepared = Prepared(f"prepared:{tmp_path / 'c'}")
    ids = prepared.sides(101, 5)[0]
    expected = tokenize(drawn.sources, load_tokenizer(prepared.tokenizers[0]))
    np.testing.assert_array_equal(
        ids.taken(np.arange(101)[:, None], 99).padded(), expected.padded()
    )


def test_a_named_corpus_keeps_its_dev_set(tmp_path):
    config = tiny_config("train_limit=0")
    named = override(config, ["train_limit=211"])
    data, dev = in_memory.load_training(named)
    path = tmp_path / "p.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in data.pairs()))
    files = override(config, [f"data=tsv:{path}", "dev=phrasebook-en-fr"])
    prepare_corpus(tmp_path / "c", files, HERE)
    found = Prepared(f"prepared:{tmp_path / 'c'}")
    assert found.count == 211
    assert found.texts("dev").sources == dev.sources
    assert found.texts("dev").references == dev.references
    with pytest.raises(CorpusError, match=r"no texts of 'train'; it has dev$"):
        found.texts("train")


def test_bad_lines_are_kept_aside_with_their_reasons(tmp_path):
    good = "".join(f"One {n} dogs.\tUn {n} chiens.\n" for n in range(97)).encode()
    bad = [b"alone", b"\xff\xfe\tx", b"\tx", b"long " * 20_000 + b"\tx", b"same\tsame", b""]
    path = tmp_path / "p.tsv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + good + b"\n".join(bad) + b"\n" + good[:-1]))
    plan = Plan(Filters(no_identical=True, no_duplicates=True), processes=0)
    manifest = prepare_corpus(tmp_path / "c", configured(path, "dev=0.1"), plan)
    assert manifest["left_out"] == {
        **{"no pair": 2, "not UTF-8": 1, "line too long": 1, "identical sides": 1, "blank": 1},
        "duplicate": manifest["pairs"],
    }
    assert manifest["lines"] == 200
    # Held out is every one twice: in the dev set one sentence has all its translations.
    assert manifest["pairs"] + manifest["held_out"] // 2 == 97
    kept = gzip.decompress((tmp_path / "c" / "left_out.tsv.gz").read_bytes()).split(b"\n")
    assert kept[:3] == [b"98\tno pair\talone", b"99\tnot UTF-8\t\xff\xfe\tx", b"100\tno pair\t\tx"]
    assert kept[3].startswith(b"101\tline too long\tlong long")
    assert kept[4:] == [b"102\tidentical sides\tsame\tsame", b""]


def test_standard_input_two_files_and_zstandard(text, tmp_path, monkeypatch, capsys):
    zstandard = pytest.importorskip("zstandard")
    config = configured(text)
    expected = prepare_corpus(tmp_path / "c", config, HERE)["sha256"]
    packed = tmp_path / "p.tsv.zst"
    half = len(text.read_bytes()) // 2
    parts = text.read_bytes()[:half], text.read_bytes()[half:]
    packed.write_bytes(b"".join(map(zstandard.compress, parts)))  # two frames
    found = prepare_corpus(tmp_path / "z", override(config, [f"data=tsv:{packed}"]), HERE)
    assert found["sha256"] == expected
    said = io.BufferedReader(io.BytesIO(text.read_bytes()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(said))
    words = ["--preset", "phrasebook-en-fr", "--data", "tsv:-", "--corpus", str(tmp_path / "i")]
    for side in ("source", "target"):
        words += ["--set", f"{side}_tokenizer=sentencepiece", "--set", f"{side}_vocab_size=300"]
    prepare.main([*words, "--workers", "1"])
    assert json.loads((tmp_path / "i" / "manifest.json").read_text())["sha256"] == expected
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["pairs"] > 400
    pairs = [line.split("\t")[:2] for line in text.read_text().split("\n") if "\t" in line]
    for name, column in (("s", 0), ("t", 1)):
        (tmp_path / name).write_text("".join(f"{pair[column]}\n" for pair in pairs))
    aligned = f"data=parallel:{tmp_path / 's'},{tmp_path / 't'}"
    assert prepare_corpus(tmp_path / "p", override(config, [aligned]), HERE)["sha256"] == expected
    (tmp_path / "t").write_text("".join(f"{pair[1]}\n" for pair in pairs[:-2]))
    with pytest.raises(CorpusError, match=f"Received: {len(pairs)} and {len(pairs) - 2}"):
        prepare_corpus(tmp_path / "q", override(config, [aligned]), HERE)
    assert not (tmp_path / "q").exists()


def test_what_is_interrupted_leaves_nothing_that_is_taken_for_whole(text, tmp_path, monkeypatch):
    config = configured(text)

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(corpora, "encode", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus(tmp_path / "c", config, HERE)
    assert not any(tmp_path.iterdir())
    killed = tmp_path / "writing-c" / "work"  # what a process that was killed leaves
    killed.mkdir(parents=True)
    (killed / "000000.train").write_text("half")
    with pytest.raises(CorpusError, match="not a prepared corpus"):
        Prepared(f"prepared:{tmp_path / 'c'}")
    prepare_corpus(tmp_path / "c", config, HERE)
    assert [file.name for file in tmp_path.iterdir()] == ["c"]
    with pytest.raises(UserError, match="is not empty"):
        prepare_corpus(tmp_path / "c", config, HERE)


def test_a_file_that_is_cut_is_found(text, tmp_path):
    prepare_corpus(tmp_path / "c", configured(text), HERE)
    ids = tmp_path / "c" / "train.target.ids"
    ids.write_bytes(ids.read_bytes()[:-2])
    with pytest.raises(CorpusError, match=r"train\.target\.ids is missing or damaged"):
        Prepared(f"prepared:{tmp_path / 'c'}")


def test_a_file_of_another_kind_is_one_line(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_text("a,b\nc,d\n")
    with pytest.raises(CorpusError, match=r"no pair to learn from: .* 2 no pair$"):
        prepare_corpus(tmp_path / "c", configured(path), HERE)
    (tmp_path / "p.gz").write_bytes(gzip.compress(b"a\tb\n" * 999)[:-9])
    with pytest.raises(CorpusError, match="Cannot read"):
        prepare_corpus(tmp_path / "c", configured(tmp_path / "p.gz"), HERE)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.gz", "p.tsv"]


def test_a_corpus_is_prepared_without_tensorflow(text, tmp_path):
    """Neither it nor Keras, 600 MB, is imported; what they would check of a key is not needed."""
    words = ["--preset", "tatoeba-en-fr", "--data", f"tsv:{text}", "--corpus", str(tmp_path / "c")]
    words += ["--set", "source_vocab_size=300", "--set", "target_vocab_size=300"]
    code = (
        "import sys\n"
        "from training import prepare\n"
        "if __name__ == '__main__':\n"
        "    prepare.main(sys.argv[1:])\n"
        "    assert not {'keras', 'tensorflow'} & set(sys.modules)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, script, *words, "--workers", "1"], env=environment, check=True)
    assert Prepared(f"prepared:{tmp_path / 'c'}").count > 400
    with pytest.raises(ConfigError, match="source_tokenizer expected one of"):
        prepare.main([*words[:-1], "source_tokenizer=what"])


def test_a_worker_that_is_killed_is_one_line():
    with pytest.raises(UserError, match="a worker process was killed"), workers(1) as run:
        list(run(functools.partial(sys.modules["os"]._exit), [(9,)]))
