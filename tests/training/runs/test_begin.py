"""The readers of a run's data."""

import json
import tomllib

import numpy as np
import pytest

from tests.training.conftest import tiny_config, untrained
from training.command.errors import ConfigError
from training.fit.train import train


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
    for ours, theirs in zip(tuned.files.tokenizers, tiny_run.files.tokenizers, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("side", ["source", "target"])
def test_other_tokenizers_than_those_of_the_run_to_start_from_are_refused(tiny_run, tmp_path, side):
    output, data = tmp_path / "run", tmp_path / "pairs.tsv"
    said = f"^{side}_tokenizer expected words, as .*tiny has it. Received: characters$"
    data.write_text("no pair\n")  # which would be refused later
    config = tiny_config(f"{side}_tokenizer=characters", f"data=tsv:{data}")
    with pytest.raises(ConfigError, match=said):
        train(config, output, init=tiny_run.path)
    assert not output.exists()
