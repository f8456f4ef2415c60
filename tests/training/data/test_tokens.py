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
from training.data.tokens._vocabularies import check_texts
from training.data.tokens.tokenizers import VocabularyTokenizer, load_tokenizer
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
    pairs = load("phrasebook-en-fr", "train", limit=503, seed=3).pairs()
    lines = [f"{source}\t{target}\n" for source, target in pairs]
    lines[100:100] = ["\n", "alone\n", "\tseul\n", lines[7], "  Twice  said.\tUne fois.\n"]
    lines += ["Twice said.\tDeux  fois.\n"]
    path = tmp_path_factory.mktemp("text") / "pairs.tsv"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def prepare_corpus(folder, config, **options):
    return tokens.prepare_corpus(folder, Texts.of(config), Tokenizing.of(config), **options)


def write_tokens(folder, config, *tokenizers):
    return tokens.write_tokens(
        folder, read_texts(Texts.of(config)), Tokenizing.of(config), *tokenizers
    )


def configured(path, *settings):
    return tiny_config("train_limit=0", f"data=tsv:{path}", *settings)


def spelled(corpus, split="train"):
    """The pairs of a split, spelled by their ids."""
    sides = []
    for file, ids in zip(corpus.tokenizers, corpus.sides(split), strict=True):
        padded = ids.select(np.arange(len(ids.lengths))[:, None], 999).padded()
        sides.append([text.decode() for text in load_tokenizer(file).detokenize(padded).numpy()])
    return list(zip(*sides, strict=True))


LARGE = [f"{side}_{key}" for side in ("source", "target") for key in ("vocab_size=9999",)]
SHAPES = {
    "words": [],
    "pieces": ["source_tokenizer=sentencepiece", "target_tokenizer=characters"],
    "shares": ["dev=0.1", "test=0.2"],
}


@pytest.mark.parametrize("name", SHAPES)
def test_ids_spell_the_texts_that_are_read_whole(text, tmp_path, name):
    config = configured(text, *LARGE, *SHAPES[name])
    prepared = write_tokens(tmp_path / "c", config)
    everything = load(config.data, "train")
    assert everything.unusable == prepared.manifest.unusable == 2
    elsewhere = set(load_split(Texts.of(config), "dev")[0].sources)
    if config.test:
        elsewhere |= set(load_split(Texts.of(config), "test")[0].sources)
    assert elsewhere
    assert spelled(prepared) == [pair for pair in everything.pairs() if pair[0] not in elsewhere]
    if name == "pieces":  # no word of dev is unknown
        assert spelled(prepared, "dev") == load_split(Texts.of(config), "dev")[0].pairs()
    assert prepared.texts("dev") == load_split(Texts.of(config), "dev")[0]
    assert prepared.manifest.left_out == {"blank": 1, "no pair": 2}
    assert prepared.manifest.lines == 509


def test_several_processes_write_what_one_writes(text, tmp_path):
    config = configured(text, "source_tokenizer=sentencepiece", "target_tokenizer=sentencepiece")
    one = prepare_corpus(tmp_path / "one", config, processes=0)
    two = prepare_corpus(tmp_path / "two", config, processes=2)
    assert one.manifest == two.manifest
    for name in one.manifest.bytes:
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one", "two"]


def test_a_limit_draws_of_the_data_and_leaves_extra_data(text, tmp_path):
    extra = tmp_path / "extra.tsv"
    extra.write_text("new\tneu\n")
    config = configured(text, f"extra_data=tsv:{extra}")
    prepared = write_tokens(tmp_path / "c", config)
    rows = prepared.rows(101, 5)
    assert len(rows) == 102
    assert rows[-1] == prepared.count - 1
    assert len(set(rows.tolist())) == 102
    assert prepared.rows(101, 6).tolist() != rows.tolist()
    assert prepared.rows() is None


def test_the_digest_is_that_of_all_files_that_are_read(text, tmp_path):
    extra, dev = tmp_path / "extra.tsv", tmp_path / "dev.tsv"
    for file in (extra, dev):
        shutil.copyfile(text, file)
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
    with monkeypatch.context() as changed:
        changed.setattr(tokens, "encode_block", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus(tmp_path / "c", configured(text), processes=0)
    assert not any(tmp_path.iterdir())
    killed = tmp_path / "writing-c"  # what a process that was killed leaves
    killed.mkdir()
    (killed / "train.source.values.npy").write_text("half")
    with pytest.raises(CorpusError, match="not a prepared corpus"):
        Prepared(tmp_path / "c")
    prepare_corpus(tmp_path / "c", configured(text), processes=0)
    with pytest.raises(UserError, match="is not empty"):
        prepare_corpus(tmp_path / "c", configured(text), processes=0)
    ids = tmp_path / "c" / "train.target.values.npy"
    ids.write_bytes(ids.read_bytes()[:-2])
    with pytest.raises(CorpusError, match=r"train\.target\.values\.npy is missing or damaged"):
        Prepared(tmp_path / "c")


def test_runs_begin_and_go_on_with_a_prepared_corpus(text, tmp_path, monkeypatch):
    """Up to where the model is built, which takes seconds."""

    class BuiltError(Exception):
        """The data were as they were."""

    monkeypatch.setattr(optimizer, "make_model", Mock(side_effect=BuiltError))
    corpus = prepare_corpus(tmp_path / "c", configured(text), processes=0)
    config = tiny_config("train_limit=97", f"data=prepared:{corpus.path}")
    assert prepare_run(config, tmp_path / "run")["train"] == 97
    files = RunFiles(tmp_path / "run")
    assert not list(files.tokens.glob("train.*"))
    config = load_config(files.config)
    names = Texts.of(config)
    ids = Prepared(files.tokens, names.data)
    pairs, dev = make_batches(ids, names, Batching.of(config))
    assert pairs.statistics.pairs + pairs.statistics.dropped == 97
    assert dev.statistics.pairs == len(corpus.texts("dev").pairs())
    with pytest.raises(BuiltError):
        texts.resume(files.path)
    with pytest.raises(CorpusError, match="no texts of 'test'; it has dev"):
        load_split(Texts.of(config), "test")
    manifest = corpus.path / "manifest.json"
    digest = corpus.manifest.digest
    manifest.write_text(manifest.read_text().replace(digest, "0" * 64))
    with pytest.raises(RunError, match="has changed since"):
        texts.resume(files.path)


def test_what_does_not_fit_what_was_prepared_is_one_line(text, tmp_path):
    corpus = prepare_corpus(tmp_path / "c", configured(text), processes=0)
    config = tiny_config("train_limit=0", f"data=prepared:{corpus.path}")
    files = RunFiles(tmp_path / "run")
    for setting, message in (
        ("target_tokenizer=characters", r"target_tokenizer needs words, as .* but it is char"),
        ("copy=true", "copy needs texts"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_run(files, override(config, [setting]))
    with pytest.raises(CorpusError, match=r"extra_data needs texts"):
        open_run(files, override(config, ["extra_data=phrasebook-en-fr"]))
    with pytest.raises(ConfigError, match=r"cannot have extra_data\. Put all texts into one file"):
        prepare_corpus(tmp_path / "new", configured(text, "extra_data=phrasebook-en-fr"))
    with pytest.raises(ConfigError, match=r"is prepared already\. Give texts"):
        prepare_corpus(tmp_path / "new", config)
    again = prepare_corpus(tmp_path / "d", configured(text), processes=0, tokenizers=corpus.path)
    for ours, theirs in zip(again.tokenizers, corpus.tokenizers, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()
    with pytest.raises(UserError, match="needs a run or a prepared corpus"):
        prepare_corpus(tmp_path / "e", configured(text), processes=0, tokenizers=tmp_path)
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


@pytest.mark.parametrize("kind", ["sentencepiece", "characters", "letters", "symbols", "words"])
@pytest.mark.parametrize("count", [60, 1500])
def test_what_looks_like_a_control_symbol_is_text(tmp_path, capsys, kind, count):
    names = ["".join(chr(97 + n // 26**place % 26) for place in range(3)) for n in range(count)]
    targets = [HABITS[n % 5].format(name) for n, name in enumerate(names)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{name}\t{text}\n" for name, text in zip(names, targets, strict=True)))
    settings = f"target_tokenizer={kind}", f"target_vocab_size={count + 99}", "dev=0.02"
    corpus = write_tokens(tmp_path / "tokens", configured(path, *settings))
    spelled_out = dict(spelled(corpus))
    assert {*spelled_out.values()} <= {*targets}
    assert "the tokenizer changes" not in capsys.readouterr().out
    shown = load_tokenizer(corpus.tokenizers[1]).tokens(np.arange(4, dtype="int32"))
    assert shown.numpy().tolist() == [b"", b"<unk>", b"", b""]


@pytest.mark.parametrize("kind", ["sentencepiece", "words"])
def test_what_no_tokenizer_gives_back_is_counted_with_an_example(tmp_path, capsys, kind):
    path = tmp_path / "pairs.tsv"
    rows = [f"name {n}\tle nom{'▁' if n % 10 == 3 else ' '}{n % 7}\n" for n in range(200)]
    path.write_text("".join(rows))
    settings = f"target_tokenizer={kind}", "target_vocab_size=400"
    write_tokens(tmp_path / "tokens", configured(path, *settings, "dev=0.02"))
    out = capsys.readouterr().out
    assert "the tokenizer changes 20 of 200 targets, for example 'le nom▁3' to 'le nom 3'" in out


@pytest.mark.parametrize("kind", ["sentencepiece", "characters", "words", "symbols"])
def test_targets_that_a_run_cannot_say_are_named(tmp_path, capsys, kind):
    def written(name, targets):
        (tmp_path / name).write_text("".join(f"s {n}\t{x}\n" for n, x in enumerate(targets)))
        return tmp_path / name

    known, some = ["a b ab"] * 97, ["a b ab"] * 90 + ["a ж ь"] * 6 + ["ж"]
    settings = f"target_tokenizer={kind}", "source_tokenizer=characters"
    first = write_tokens(tmp_path / "first", configured(written("known", known), *settings)).path
    capsys.readouterr()
    write_tokens(tmp_path / "second", configured(written("some", some), *settings), first)
    out = capsys.readouterr().out
    assert "7 of 97 targets contain tokens outside the vocabulary, which the model can" in out
    assert "output: ж ь (2 in all)" in out
    other = written("other", ["a b"] * 40 + ["жь ж"] * 40)
    wanted = r"40 of 80 targets contain tokens outside the vocabulary, .* 40 targets have no other"
    with pytest.raises(CorpusError, match=wanted):
        write_tokens(tmp_path / "third", configured(other, *settings), first)
    again = configured(tmp_path / "known", *settings, f"dev=tsv:{other}")
    with pytest.raises(CorpusError, match=r"^dev: 40 of 80"):
        write_tokens(tmp_path / "fourth", again)


@pytest.mark.parametrize("kind", ["sentencepiece", "letters", "words", "symbols"])
def test_sources_that_a_run_cannot_read_are_named_whichever_way_they_come_in(
    tmp_path, capsys, kind
):
    def written(name, sources):
        (tmp_path / name).write_text("".join(f"{x}\tt {n % 9}\n" for n, x in enumerate(sources)))
        return f"tsv:{tmp_path / name}"

    known = written("known", [f"a b{n % 7} c{n // 7}" for n in range(97)])
    odd = written("odd", [f"a b{n % 7}" for n in range(40)] + ["a ж ь"] * 6 + ["ж"])
    settings = f"source_tokenizer={kind}", "target_tokenizer=words"

    def said(folder, *more, init=None):
        capsys.readouterr()
        config = tiny_config("train_limit=0", *settings, *more)
        write_tokens(tmp_path / folder, config, *([init] if init else []))
        return [line for line in capsys.readouterr().out.splitlines() if "sources contain" in line]

    first = tmp_path / "0"
    assert said("0", f"data={known}", "dev=0.1") == []
    wanted = "7 of 47 sources contain tokens outside the vocabulary, which the model cannot tell"
    wanted += " apart: ж ь (2 in all)"
    (dev,) = said("1", f"data={known}", f"dev={odd}")
    assert dev.startswith(f"dev: {wanted}")
    (test,) = said("2", f"data={known}", "dev=0.1", f"test={odd}")
    assert test.startswith(f"test: {wanted}")
    data, *_ = said("3", f"data={odd}", f"dev={known}", init=first)
    assert data.startswith(f"{odd}: {wanted}")
    (extra,) = said("4", f"data={known}", "dev=0.1", f"extra_data={odd}", init=first)
    assert extra.startswith(f"{odd}: {wanted}")
    corpus = tmp_path / "corpus"
    config = tiny_config("train_limit=0", *settings, f"data={odd}", f"dev={known}")
    prepare_corpus(corpus, config, tokenizers=first)
    assert f"{odd}: {wanted}" in capsys.readouterr().out
    (dev,) = said("5", f"data=prepared:{corpus}", f"dev={odd}")
    assert dev.startswith(f"dev: {wanted}")
    other = written("other", ["жь ж"] * 40)
    with pytest.raises(CorpusError, match=r"^dev: 9 of 9 sources .* 9 sources have no other"):
        said("6", f"data={known}", f"dev={other}")


@pytest.mark.parametrize("count", [3, 300])
def test_all_targets_with_unknown_words_are_tokenized_at_once(monkeypatch, capsys, count):
    calls, tokenize = [], VocabularyTokenizer.tokenize
    monkeypatch.setattr(VocabularyTokenizer, "tokenize", lambda *a: calls.append(a) or tokenize(*a))
    targets = [f"a w{n % 7}" for n in range(count)]
    check_texts("some", targets, VocabularyTokenizer("words", ["▁a"]))
    assert len(calls) == 1
    found = dict.fromkeys(target[2:] for target in targets)
    assert f": {' '.join(found)} ({len(found)} in all)\n" in capsys.readouterr().out
