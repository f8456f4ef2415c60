"""Mechanisms from training to a served sentence; with EVERY_MECHANISM=1, which takes long, all."""

import os

import numpy as np
import pytest

from keras_attention import mechanisms
from serving.check.version import check_version
from serving.client.clients import Translator
from serving.export.version import export
from tests.serving.conftest import serving
from tests.training.conftest import tiny_config
from training.decode.settings import SearchSettings
from training.decode.texts import make_translator
from training.fit.train import train
from training.runs.run import load_run

TEXT = ["three two one"]
SMALLEST = ["validation_limit=3", "epochs=1", "decoder_units=22"]
SETTINGS = {
    **{name: [f"attention={name}"] for name in mechanisms.BY_NAME},
    "heads": ["attention_heads=2", "attention_units=6", "distribution=entmax15"],
    "deep": ["readout=deep"],
    "hard": ["attention=chunkwise", "attention_options=mode=hard, chunk_size=3"],
    "coverage": ["attention=coverage", "coverage_loss=1", "order=bahdanau"],
}
# One that remembers: an export may lose what is carried from step to step.
QUICK = ("coverage",)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "counted.tsv"
    words = ["one two", "two three", "three one two", "one", "two two three"]
    pairs = [(f"{a} {b}", f"{b} {a}") for a in words for b in words]
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs * 4))
    return f"tsv:{path}"


@pytest.mark.slow  # it trains and exports
@pytest.mark.parametrize("name", SETTINGS if os.environ.get("EVERY_MECHANISM") else QUICK)
def test_it_is_trained_exported_checked_and_served(name, data, tmp_path):
    settings = [f"data={data}", *SMALLEST, *SETTINGS[name]]
    record = train(tiny_config(*settings), tmp_path / "run")
    assert 1 < record["val_perplexity"] < 100
    base = tmp_path / "tiny"
    run = load_run(tmp_path / "run")
    version = export([run], base, beam_width=2, num_results=2, max_source_length=7)
    assert check_version(version) == []
    flags = ["--model_name=tiny", f"--model_base_path={base}"]
    with serving(*flags) as server, Translator(f"localhost:{server.port}", "tiny") as client:
        (found,) = client.align(TEXT)
    assert [found.translation] == make_translator([run], SearchSettings(beam_width=2))(TEXT)
    assert list(found.source_tokens) == ["▁three", "▁two", "▁one"]
    weights = np.reshape(found.attention_weights, (len(found.target_tokens), 3))
    assert (weights >= 0).all()
    assert (weights.sum(1) < 1 + 1e-5).all()
