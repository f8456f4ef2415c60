"""Token ids that are written in one pass, held to the texts that they spell."""

import hashlib
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.training.conftest import tiny_config
from tests.training.data.files import spelled, write
from training import prepare
from training.command.errors import ConfigError, RunError, UserError
from training.config.schema import load_config, override
from training.data.batches._batches import make_batches
from training.data.batches._plan import Batching
from training.data.read import texts as reading
from training.data.read._files import read_blocks
from training.data.read._specs import CorpusError
from training.data.read.texts import Texts, load, load_split, read_texts
from training.data.tokens import _encoding as tokens
from training.data.tokens._encoding import Tokenizing
from training.data.tokens._pool import workers
from training.data.tokens._prepared import Prepared
from training.data.tokens.tokenizers import load_tokenizer
from training.fit import _optimizer as optimizer
from training.fit import _train as texts
from training.runs._start import open_run, prepare_run
from training.runs.files import RunFiles


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch):
    monkeypatch.setattr(reading, "read_blocks", partial(read_blocks, size=7001))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Pairs in a file, with lines that hold none, with duplicates and sources said in two ways."""
    lines = load("phrasebook-en-fr", "train", limit=503, seed=3).pairs()
    lines[100:100] = [("",), ("alone",), ("", "seul"), lines[7], ("  Twice  said.", "Une fois.")]
    lines += [("Twice said.", "Deux  fois.")]
    return write(tmp_path_factory.mktemp("text") / "pairs.tsv", lines)


def prepare_corpus(folder, config, **options):
    options = {"processes": 0, **options}
    return tokens.prepare_corpus(folder, Texts.of(config), Tokenizing.of(config), **options)


def write_tokens(folder, config, *tokenizers):
    read = read_texts(Texts.of(config))
    return tokens.write_tokens(folder, read, Tokenizing.of(config), *tokenizers)


def configured(path, *settings):
    return tiny_config("train_limit=0", f"data=tsv:{path}", *settings)


SHAPES = {
    "words": [],
    "pieces": ["source_tokenizer=sentencepiece", "target_tokenizer=characters"],
    "shares": ["dev=0.1", "test=0.2"],
}


@pytest.mark.parametrize("name", SHAPES)
def test_ids_spell_the_texts_that_are_read_whole(text, tmp_path, name):
    sizes = ("source_vocab_size=9999", "target_vocab_size=9999")
    config = configured(text, *sizes, *SHAPES[name])
    prepared, everything = write_tokens(tmp_path / "c", config), load(config.data, "train")
    assert everything.unusable == prepared.manifest.unusable == 2
    dev = load_split(Texts.of(config), "dev")[0]
    elsewhere = set(dev.sources)
    if config.test:
        elsewhere |= set(load_split(Texts.of(config), "test")[0].sources)
    assert elsewhere
    assert spelled(prepared) == [pair for pair in everything.pairs() if pair[0] not in elsewhere]
    if name == "pieces":  # no word of dev is unknown
        assert spelled(prepared, "dev") == dev.pairs()
    assert prepared.texts("dev") == dev
    assert prepared.manifest.left_out == {"blank": 1, "no pair": 2}
    assert prepared.manifest.lines == 509


def test_several_processes_write_what_one_writes(text, tmp_path):
    config = configured(text, "source_tokenizer=sentencepiece", "target_tokenizer=sentencepiece")
    one, two = (prepare_corpus(tmp_path / str(n), config, processes=n) for n in (0, 2))
    assert one.manifest == two.manifest
    for name in one.manifest.bytes:
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0", "2"]


def test_a_limit_draws_of_the_data_and_leaves_extra_data(text, tmp_path):
    extra = write(tmp_path / "extra.tsv", "new\tneu\n")
    prepared = write_tokens(tmp_path / "c", configured(text, f"extra_data=tsv:{extra}"))
    rows, others = (prepared.rows(101, seed).tolist() for seed in (5, 6))
    assert len(set(rows)) == len(rows) == 102
    assert rows[-1] == prepared.count - 1
    assert others != rows
    assert prepared.rows() is None


def test_the_digest_is_that_of_all_files_that_are_read(text, tmp_path):
    extra, dev = (shutil.copyfile(text, tmp_path / name) for name in ("extra.tsv", "dev.tsv"))
    config = configured(text, f"extra_data=tsv:{extra}", f"dev=tsv:{dev}")
    prepared = write_tokens(tmp_path / "c", config)
    hashes = [hashlib.sha256(file.read_bytes()).digest() for file in (text, extra, dev)]
    assert prepared.manifest.digest == hashlib.sha256(b"".join(hashes)).hexdigest()

    def digest(*manifest):
        return Texts.of(config).stamped(*manifest)[0]

    assert digest() == digest(prepared.manifest) == prepared.manifest.digest
    for file in (extra, dev):
        file.write_text(file.read_text().replace("Twice", "Once"))
        assert digest(prepared.manifest) != prepared.manifest.digest
        shutil.copyfile(text, file)
        assert digest(prepared.manifest) == prepared.manifest.digest
    dev.unlink()
    with pytest.raises(CorpusError, match=r"Cannot read .*dev\.tsv: No such file"):
        digest(prepared.manifest)
    config = tiny_config("train_limit=53")  # of a named corpus
    assert digest() == write_tokens(tmp_path / "n", config).manifest.digest


def test_what_is_interrupted_leaves_nothing_that_is_taken_for_whole(text, tmp_path, monkeypatch):
    corpus = tmp_path / "c"
    with monkeypatch.context() as changed:
        changed.setattr(tokens, "encode_block", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus(corpus, configured(text))
    assert not any(tmp_path.iterdir())
    # What a process that was killed leaves
    write(tmp_path / "writing-c" / "train.source.values.npy", "half")
    with pytest.raises(CorpusError, match="not a prepared corpus"):
        Prepared(corpus)
    prepare_corpus(corpus, configured(text))
    with pytest.raises(UserError, match="is not empty"):
        prepare_corpus(corpus, configured(text))
    ids = corpus / "train.target.values.npy"
    ids.write_bytes(ids.read_bytes()[:-2])
    with pytest.raises(CorpusError, match=r"train\.target\.values\.npy is missing or damaged"):
        Prepared(corpus)


def test_runs_begin_and_go_on_with_a_prepared_corpus(text, tmp_path, monkeypatch):
    """Up to where the model is built, which takes seconds."""

    class BuiltError(Exception):
        """The data were as they were."""

    monkeypatch.setattr(optimizer, "make_model", Mock(side_effect=BuiltError))
    corpus = prepare_corpus(tmp_path / "c", configured(text))
    config = tiny_config("train_limit=97", f"data=prepared:{corpus.path}")
    assert prepare_run(config, tmp_path / "run")["train"] == 97
    files = RunFiles(tmp_path / "run")
    assert not list(files.tokens.glob("train.*"))
    config = load_config(files.config)
    names = Texts.of(config)
    pairs, dev = make_batches(Prepared(files.tokens, names.data), names, Batching.of(config))
    assert pairs.statistics.pairs + pairs.statistics.dropped == 97
    assert dev.statistics.pairs == len(corpus.texts("dev").pairs())
    with pytest.raises(BuiltError):
        texts.resume(files.path)
    with pytest.raises(CorpusError, match="no texts of 'test'; it has dev"):
        load_split(Texts.of(config), "test")
    manifest = corpus.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace(corpus.manifest.digest, "0" * 64))
    with pytest.raises(RunError, match="has changed since"):
        texts.resume(files.path)


def test_what_does_not_fit_what_was_prepared_is_one_line(text, tmp_path):
    corpus = prepare_corpus(tmp_path / "c", configured(text))
    config = tiny_config("train_limit=0", f"data=prepared:{corpus.path}")
    for setting, message in {
        "target_tokenizer=characters": r"target_tokenizer needs words, as .* but it is char",
        "copy=true": "copy needs texts",
        "extra_data=phrasebook-en-fr": "extra_data needs texts",
    }.items():
        with pytest.raises(UserError, match=message):
            open_run(RunFiles(tmp_path / "run"), override(config, [setting]))
    for wrong, message in {
        configured(text, "extra_data=phrasebook-en-fr"): "cannot have extra_data. Put all texts in",
        config: "is prepared already. Give texts",
    }.items():
        with pytest.raises(ConfigError, match=message):
            prepare_corpus(tmp_path / "new", wrong)
    again = prepare_corpus(tmp_path / "d", configured(text), tokenizers=corpus.path)
    for ours, theirs in zip(again.tokenizers, corpus.tokenizers, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()
    with pytest.raises(UserError, match="needs a run or a prepared corpus"):
        prepare_corpus(tmp_path / "e", configured(text), tokenizers=tmp_path)
    other = again.tokenizers[1]
    other.write_text(f"{other.read_text(encoding='utf-8')}\n", encoding="utf-8")
    with pytest.raises(RunError, match="have different tokenizers: prepare the corpus with --tok"):
        write_tokens(tmp_path / "f", config, again.path)


def test_a_corpus_is_prepared_without_tensorflow(text, tmp_path):
    """Neither it nor Keras, 600 MB, is imported; what they would check of a key is not needed."""
    words = ["--preset", "tatoeba-en-fr", "--data", f"tsv:{text}", "--corpus", str(tmp_path / "c")]
    words += ["--set", "source_vocab_size=300", "--set", "target_vocab_size=300"]
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from training import prepare\n"
        "if __name__ == '__main__':\n"
        "    prepare.main(sys.argv[1:])\n"
        "    assert not {'keras', 'tensorflow'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, script, *words, "--workers", "1"], env=environment, check=True)
    assert Prepared(tmp_path / "c").count > 400
    with pytest.raises(ConfigError, match="source_tokenizer needs one of"):
        prepare.main([*words[:-1], "source_tokenizer=what"])


def test_a_worker_that_is_killed_is_one_line():
    with pytest.raises(UserError, match="A worker process was killed"), workers(1) as run:
        list(run(partial(sys.modules["os"]._exit), [(9,)]))


HABITS = ["<s> un {} </s>", "<pad> {}", "<unk> et {}", "{} ⁇ </s>", "a <s> {}<s>"]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *((kind, 60) for kind in ("sentencepiece", "characters", "letters", "symbols", "words")),
        ("sentencepiece", 1500),
    ],
)
def test_what_looks_like_a_control_symbol_is_text(tmp_path, capsys, kind, count):
    names = ["".join(chr(97 + n // 26**place % 26) for place in range(3)) for n in range(count)]
    targets = [HABITS[n % 5].format(name) for n, name in enumerate(names)]
    path = write(tmp_path / "pairs.tsv", zip(names, targets, strict=True))
    settings = f"target_tokenizer={kind}", f"target_vocab_size={count + 99}", "dev=0.02"
    corpus = write_tokens(tmp_path / "tokens", configured(path, *settings))
    assert {text for _, text in spelled(corpus)} <= {*targets}
    assert "the tokenizer changes" not in capsys.readouterr().out
    shown = load_tokenizer(corpus.tokenizers[1]).tokens(np.arange(4, dtype="int32"))
    assert shown.numpy().tolist() == [b"", b"<unk>", b"", b""]


@pytest.mark.parametrize("kind", ["sentencepiece", "words"])
def test_what_no_tokenizer_gives_back_is_counted_with_an_example(tmp_path, capsys, kind):
    rows = [(f"name {n}", f"le nom{'▁' if n % 10 == 3 else ' '}{n % 7}") for n in range(200)]
    path = write(tmp_path / "pairs.tsv", rows)
    settings = f"target_tokenizer={kind}", "target_vocab_size=400"
    write_tokens(tmp_path / "tokens", configured(path, *settings, "dev=0.02"))
    out = capsys.readouterr().out
    assert "the tokenizer changes 20 of 200 targets, for example 'le nom▁3' to 'le nom 3'" in out


@pytest.mark.parametrize("kind", ["sentencepiece", "characters", "words", "symbols"])
def test_targets_that_a_run_cannot_say_are_named(tmp_path, capsys, kind):
    def written(name, targets):
        return write(tmp_path / name, [(f"s {n}", x) for n, x in enumerate(targets)])

    known = written("known", ["a b ab"] * 97)
    some = written("some", ["a b ab"] * 90 + ["a ж ь"] * 6 + ["ж"])
    other = written("other", ["a b"] * 40 + ["жь ж"] * 40)
    settings = f"target_tokenizer={kind}", "source_tokenizer=characters"
    first = write_tokens(tmp_path / "first", configured(known, *settings)).path
    capsys.readouterr()
    write_tokens(tmp_path / "second", configured(some, *settings), first)
    out = capsys.readouterr().out
    assert "7 of 97 targets contain tokens outside the vocabulary, which the model can" in out
    assert "output: ж ь (2 in all)" in out
    wanted = "40 of 80 targets contain tokens outside the vocabulary, .* 40 targets have no other"
    with pytest.raises(CorpusError, match=wanted):
        write_tokens(tmp_path / "third", configured(other, *settings), first)
    with pytest.raises(CorpusError, match=r"^dev: 40 of 80"):
        write_tokens(tmp_path / "fourth", configured(known, *settings, f"dev=tsv:{other}"))


@pytest.mark.parametrize("kind", ["sentencepiece", "letters", "words", "symbols"])
def test_sources_that_a_run_cannot_read_are_named_whichever_way_they_come_in(
    tmp_path, capsys, kind
):
    def written(name, sources):
        rows = [(x, f"t {n % 9}") for n, x in enumerate(sources)]
        return f"tsv:{write(tmp_path / name, rows)}"

    known = written("known", [f"a b{n % 7} c{n // 7}" for n in range(97)])
    odd = written("odd", [f"a b{n % 7}" for n in range(40)] + ["a ж ь"] * 6 + ["ж"])
    first, corpus = tmp_path / "0", tmp_path / "corpus"

    def said(folder, *more, init=(), write=write_tokens, **options):
        capsys.readouterr()
        settings = f"source_tokenizer={kind}", "target_tokenizer=words", *more
        write(tmp_path / folder, tiny_config("train_limit=0", *settings), *init, **options)
        return [line for line in capsys.readouterr().out.splitlines() if "sources contain" in line]

    assert said("0", f"data={known}", "dev=0.1") == []
    again = {"write": prepare_corpus, "tokenizers": first}
    for folder, settings, options, where in (
        ("1", (f"data={known}", f"dev={odd}"), {}, "dev"),
        ("2", (f"data={known}", "dev=0.1", f"test={odd}"), {}, "test"),
        ("3", (f"data={odd}", f"dev={known}"), {"init": [first]}, odd),
        ("4", (f"data={known}", "dev=0.1", f"extra_data={odd}"), {"init": [first]}, odd),
        ("corpus", (f"data={odd}", f"dev={known}"), again, odd),
        ("5", (f"data=prepared:{corpus}", f"dev={odd}"), {}, "dev"),
    ):
        line = said(folder, *settings, **options)[0]
        wanted = "7 of 47 sources contain tokens outside the vocabulary, which the model cannot"
        assert line.startswith(f"{where}: {wanted} tell apart: ж ь (2 in all)"), folder
    with pytest.raises(CorpusError, match=r"^dev: 9 of 9 sources .* 9 sources have no other"):
        said("6", f"data={known}", f"dev={written('other', ['жь ж'] * 40)}")
