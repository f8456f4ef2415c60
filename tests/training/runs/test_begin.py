"""The readers of a run's data."""

import json
import tomllib

import pytest

from tests.training.conftest import tiny_config, untrained
from training.command.errors import ConfigError
from training.fit.train import train
from training.runs.files import RunFiles
from training.runs.start import open_run

KINDS = "source_tokenizer=words", "target_tokenizer=words", "train_limit=0", "test="


def test_vocabularies_that_are_smaller_than_asked_for_are_said(tmp_path, capsys):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text("she sees it\tsie sieht ihn\nhe sees her\ter sieht sie\n")
    dev.write_text("he sees it\ter sieht ihn\n")
    texts = f"data=tsv:{train}", f"dev=tsv:{dev}", *KINDS
    config = tiny_config(*texts, "source_vocab_size=11", "target_vocab_size=9")
    opened = open_run(RunFiles(tmp_path / "larger"), config)
    assert opened.target is not None
    assert (opened.source.size, opened.target.vocab_size) == (4 + 5, 4 + 4)
    assert capsys.readouterr().out == (
        "The source side has 9 tokens, not 11: all that its text gives.\n"
        "The target side has 8 tokens, not 9: all that its text gives.\n"
    )
    config = tiny_config(*texts, "source_vocab_size=9", "target_vocab_size=8")
    open_run(RunFiles(tmp_path / "exact"), config)
    assert capsys.readouterr().out == ""


def test_a_run_that_starts_from_another_says_the_sizes_of_its_vocabularies(tiny_run, tmp_path):
    settings = ("train_limit=200", "source_vocab_size=123", "target_vocab_size=9999")
    tuned = untrained(tiny_config(*settings), tmp_path / "tuned", init=tiny_run.path)
    states = [json.loads(file.read_text()) for file in tiny_run.files.tokenizers]
    written = tomllib.loads(tuned.files.config.read_text())
    for side, state in zip(("source", "target"), states, strict=True):
        assert written[f"{side}_vocab_size"] == 4 + len(state["tokens"])  # 4 are special
        assert written[f"{side}_tokenizer"] == state["kind"]
    for ours, theirs in zip(tuned.files.tokenizers, tiny_run.files.tokenizers, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("side", ["source", "target"])
def test_other_tokenizers_than_those_of_the_run_to_start_from_are_refused(tiny_run, tmp_path, side):
    output, data = tmp_path / "run", tmp_path / "pairs.tsv"
    said = f"^{side}_tokenizer expected words, as .*tiny has it. Received: characters$"
    data.write_text("no pair\n")  # which would be refused later
    with pytest.raises(ConfigError, match=said):
        train(
            tiny_config(f"{side}_tokenizer=characters", f"data=tsv:{data}"),
            output,
            init=tiny_run.path,
        )
    assert not output.exists()
