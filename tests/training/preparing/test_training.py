"""Training from a prepared corpus."""

import json

import numpy as np
import pytest

from tests.training.conftest import TINY, tiny_config
from training import phrasebook, train
from training.config import ConfigError
from training.data.batches import PairBatches
from training.data.pair_files import CorpusError
from training.data.prepared import Prepared
from training.data.splits import load_split, load_training
from training.errors import RunError
from training.fit import arrays
from training.preparing.cleaning import Filters
from training.preparing.corpora import Plan, prepare_corpus
from training.preparing.run import prepare_run
from training.runs.begin import make_sides
from training.runs.files import RunFiles
from training.settings import load_config, override


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    pairs = phrasebook.generate("en-fr", "train", 503, 3)
    text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
    (folder / "pairs.tsv").write_text(text, encoding="utf-8")
    config = tiny_config("train_limit=0", f"data=tsv:{folder / 'pairs.tsv'}")
    prepare_corpus(folder / "corpus", config, Plan(Filters(), processes=0))
    return folder / "corpus"


def test_a_run_is_trained_and_goes_on_with_what_it_began_with_alone(corpus, tmp_path, capsys):
    small = [f"{name}=1" for name in ("epochs", "encoder_units", "validation_limit")]
    words = [word for setting in [*TINY, *small] for word in ("--set", setting)]
    output = ["--output", str(tmp_path / "run")]
    train.main(["--preset", "phrasebook-en-fr", "--data", f"prepared:{corpus}", *output, *words])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["epochs_done"] == 1
    config = load_config(tmp_path / "run" / "config.toml")
    dev, read = load_split(config, "dev")  # which training.evaluate scores
    assert (len(dev.sources), read["split"]) == (len(load_training(config)[1].sources), "dev")
    with pytest.raises(CorpusError, match="no texts of 'test'; it has dev"):
        load_split(config, "test")
    manifest = corpus / "manifest.json"
    text = manifest.read_text()
    try:
        manifest.write_text(text.replace('"train.source.ids": "', '"train.source.ids": "0'))
        with pytest.raises(RunError, match="no longer has the sentences"):
            train.main(["--resume", *output, "--set", "epochs=2"])
    finally:
        manifest.write_text(text)


def test_other_backends_read_it_where_it_lies(corpus, tmp_path):
    config = tiny_config("train_limit=97", f"data=prepared:{corpus}")
    counts = prepare_run(config, tmp_path / "run")
    assert counts["train"] == 97
    read, tokens = arrays.read_tokens(RunFiles(tmp_path / "run"))
    assert not {"source", "target"} & set(tokens)
    found = arrays.token_batches(tokens, "", read, training=True).epoch(3)
    sides = Prepared(f"prepared:{corpus}").sides(97, config.seed)
    for (inputs, labels), (expected, target) in zip(
        found, PairBatches.of(config, *sides, training=True).epoch(3), strict=True
    ):
        np.testing.assert_array_equal(inputs["source"], expected["source"])
        np.testing.assert_array_equal(labels, target)


def test_what_does_not_fit_what_was_prepared_is_one_line(corpus, tmp_path):
    data = Prepared(f"prepared:{corpus}")
    config = override(tiny_config(), [f"data={data.spec}"])
    other = override(config, ["target_tokenizer=characters"])
    with pytest.raises(ConfigError, match=r"target_tokenizer expected words, as .* Received: char"):
        make_sides(other, data)
    with pytest.raises(ConfigError, match="copy expected texts"):
        make_sides(override(config, ["copy=true"]), data)
    for name in ("source", "target"):
        (tmp_path / f"{name}.tokenizer").write_text("{}")
    with pytest.raises(RunError, match="have different tokenizers: prepare the corpus with"):
        make_sides(config, data, tmp_path)
    taken = Plan(Filters(), 0, tokenizers=corpus)
    pairs = tmp_path / "p.tsv"
    pairs.write_text("He sleeps.\tIl dort.\n" * 3 + "She eats.\tElle mange.\n")
    again = override(config, [f"data=tsv:{pairs}", f"dev=tsv:{pairs}"])
    prepare_corpus(tmp_path / "c", again, taken)
    assert (tmp_path / "c/source.tokenizer").read_bytes() == data.tokenizers[0].read_bytes()
