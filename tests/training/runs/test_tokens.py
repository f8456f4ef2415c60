"""The readers of a run's data, and its token ids, written when it begins."""

import json
import os
import random
import shutil
import tomllib
from dataclasses import replace
from decimal import Decimal
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf

from tests.training.conftest import tiny_config, untrained
from tests.training.data.files import write
from training.command.errors import ConfigError, RunError
from training.config.schema import load_config
from training.data.read._specs import CorpusError
from training.data.rules import most_tokens
from training.data.tokens import _encoding as writing
from training.fit import _optimizer as optimizer
from training.fit import _train as texts
from training.fit._prepared import train_prepared
from training.runs._choices import fitting_bound
from training.runs._start import prepare_run
from training.runs.files import RunFiles


class BuiltError(Exception):
    """Training got as far as its model."""


@pytest.fixture
def built(monkeypatch):
    """Training stops before its model is built, which takes seconds."""

    monkeypatch.setattr(optimizer, "make_model", Mock(side_effect=BuiltError))


@pytest.fixture
def pairs(tmp_path):
    rows = [(f"{n} dogs sleep {n % 7}", f"{n} chiens dorment {n % 5}") for n in range(211)]
    return write(tmp_path / "pairs.tsv", rows)


@pytest.fixture
def begun(pairs, tmp_path):
    """A run that has begun, its configuration and what tokenizes for it."""
    config = tiny_config("train_limit=0", f"data=tsv:{pairs}")
    prepare_run(config, tmp_path / "run")
    return RunFiles(tmp_path / "run"), config


def test_a_pronouncer_is_prepared_too(pairs, tmp_path):
    aligned = ("attention=hard_monotonic", "order=luong", "decoder=lstm", "tie_embeddings=false")
    config = tiny_config("label_smoothing=0", *aligned, f"data=tsv:{pairs}")
    prepare_run(config, tmp_path / "run")
    assert RunFiles(tmp_path / "run").tokens.is_dir()
    with pytest.raises(ConfigError, match="attention needs one of none, additive"):
        prepare_run(replace(config, attention="unheard"), tmp_path / "other")


def test_answers_may_be_as_long_as_targets_are(pairs, tmp_path, capsys):
    """And longer, where sources are; which the run remembers."""

    def bound(name, *settings):
        prepare_run(tiny_config(*settings, f"data=tsv:{pairs}"), tmp_path / name)
        return load_config(tmp_path / name / "config.toml").bound

    write(pairs, [(n, f"number number {n}") for n in range(211)])
    letters = ("source_tokenizer=letters", "target_tokenizer=letters", "train_limit=0")
    factor, more = bound("run", *letters)
    for n in (7, 77, 210, 9999):
        assert factor * len(str(n)) + more >= len(f"number number {n}") + 3
    assert f"--set max_answer={factor}x+{more}" in capsys.readouterr().out
    assert bound("own", "max_answer=3x+1") == (3, 1)


@pytest.mark.parametrize("slope", [0.5, 1.6, 4])
def test_no_target_is_longer_than_its_bound(slope):
    rng = np.random.default_rng(3)
    source = rng.integers(1, 40, 503)
    target = np.maximum(1, (slope * source + rng.normal(0, 5, 503)).astype(int))
    factor, more = map(int, fitting_bound(source, target).split("x+"))
    assert all(factor * s + more >= t + 10 for s, t in zip(source, target, strict=True))
    assert factor <= 2 * slope + 1
    spelled, less = map(float, fitting_bound(source, target, spelled=True).split("x+"))
    assert spelled <= factor
    bounds = np.floor(spelled * source + 1e-9) + less
    assert (bounds > target).all()  # the end token is one more
    assert bounds.mean() < (factor * source + more).mean() - 8


def test_answers_to_words_are_bounded_by_a_fraction(pairs, tmp_path, capsys):
    """By whole numbers, a word of eight letters could have twenty phones."""
    words = ["".join(random.Random(n).choices("abcdefg", k=n % 9 + 3)) for n in range(211)]
    write(pairs, [(word, " ".join(word.replace("g", "gh"))) for word in words])
    prepare_run(tiny_config("source_tokenizer=letters", f"data=tsv:{pairs}"), tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.toml")
    longest = max(len(word) + word.count("g") for word in words)
    assert 1 < config.bound[0] < 2
    assert longest < most_tokens(11, config.bound) < 11 * 2
    assert f"--set max_answer={config.max_answer}" in capsys.readouterr().out


@pytest.mark.parametrize("factor", [1, 1.05, 1.15, 0.29, 2.5, 7.99])
def test_a_bound_is_exact_decimals(factor):
    lengths = np.arange(0, 40_000, 7)
    exact = [int(Decimal(str(factor)) * int(n)) + 3 for n in lengths]
    assert most_tokens(lengths, (factor, 3)).tolist() == exact
    assert np.array(most_tokens(tf.constant(lengths, "int32"), (factor, 3))).tolist() == exact


def test_a_run_that_goes_on_tokenizes_nothing(begun, built, monkeypatch):
    files, _ = begun
    encode = Mock(wraps=writing.encode_block)
    monkeypatch.setattr(writing, "encode_block", encode)
    ids = files.tokens / "train.source.values.npy"
    written = ids.read_bytes()

    def resume():
        encode.reset_mock()
        with pytest.raises(BuiltError):
            texts.resume(files.path)
        return encode.call_count

    assert resume() == 0
    ids.write_bytes(written[:-2])  # what is damaged is made anew
    assert resume() == 1
    assert ids.read_bytes() == written
    assert resume() == 0
    shutil.rmtree(files.tokens)  # as in a run of an older version
    assert (resume(), resume()) == (1, 0)
    assert not files.streamed.exists()


def test_a_run_on_other_texts_is_refused_or_tokenized_anew(begun, pairs, built):
    files, _ = begun
    ids = files.tokens / "train.target.values.npy"
    before, settings = ids.read_bytes(), files.config.read_bytes()
    os.utime(pairs, (1, 1))  # a file of another time is read again, and found to be the same
    with pytest.raises(BuiltError):
        texts.resume(files.path)
    with pairs.open("a") as file:
        file.write("".join(f"{n} dogs\t{n} chiens\n" for n in range(50)))
    with pytest.raises(RunError, match="has changed since"):
        texts.resume(files.path, ["epochs=7", "learning_rate=0.5"])
    assert (ids.read_bytes(), files.config.read_bytes()) == (before, settings)
    with pytest.raises(BuiltError):
        texts.resume(files.path, force=True)
    after = ids.read_bytes()
    assert len(after) > len(before)
    assert after[128 : len(before)] == before[128:]  # but for the header


def test_a_run_whose_checkpoints_cannot_be_read_keeps_its_settings(begun):
    files, _ = begun
    before = files.config.read_bytes()
    files.checkpoint(0).mkdir(parents=True)
    with pytest.raises(RunError, match="can be read"):
        texts.resume(files.path, ["epochs=7", "learning_rate=0.5"])
    assert files.config.read_bytes() == before


def test_what_did_not_become_a_run_leaves_no_ids(pairs, tmp_path, built):
    with pytest.raises(BuiltError):
        texts.train(tiny_config(f"data=tsv:{pairs}"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_run_with_translations_does_not_go_on_without_them(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    with pytest.raises(RunError, match="scores of translations, which need TensorFlow"):
        train_prepared(run)


@pytest.mark.parametrize("content", ["[]", "3", '{"format": 2}'])
def test_ids_whose_manifest_is_broken_are_made_anew(begun, built, content):
    files, _ = begun
    manifest = files.tokens / "manifest.json"
    written = manifest.read_bytes()
    manifest.write_text(content)
    with pytest.raises(CorpusError, match="expected format 2"):
        train_prepared(files.path)
    with pytest.raises(BuiltError):
        texts.resume(files.path)
    assert manifest.read_bytes() == written


def test_a_run_that_starts_from_another_has_its_weights_and_sizes_of_vocabularies(
    tiny_run, tmp_path
):
    settings = ("train_limit=200", "source_vocab_size=123", "target_vocab_size=9999")
    tuned = untrained(tiny_config(*settings), tmp_path / "tuned", init=tiny_run.path)
    for ours, theirs in zip(tuned.model.weights, tiny_run.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    states = [json.loads(file.read_text()) for file in tiny_run.files.tokenizers]
    written = tomllib.loads(tuned.files.config.read_text())
    for side, state in zip(("source", "target"), states, strict=True):
        assert written[f"{side}_vocab_size"] == 4 + len(state["tokens"])  # 4 are special
        assert written[f"{side}_tokenizer"] == state["kind"]
    ours, theirs = ([f.read_bytes() for f in run.files.tokenizers] for run in (tuned, tiny_run))
    assert ours == theirs


@pytest.mark.parametrize("side", ["source", "target"])
def test_other_tokenizers_than_those_of_the_run_to_start_from_are_refused(tiny_run, tmp_path, side):
    output, data = tmp_path / "run", write(tmp_path / "pairs.tsv", "no pair\n")  # told later
    said = f"^{side}_tokenizer needs words, as .*tiny has it, but it is characters. Add --set .*$"
    config = tiny_config(f"{side}_tokenizer=characters", f"data=tsv:{data}")
    with pytest.raises(ConfigError, match=said):
        texts.train(config, output, init=tiny_run.path)
    assert not output.exists()
