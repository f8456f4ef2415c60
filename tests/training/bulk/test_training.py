"""Training from a prepared corpus."""

import numpy as np
import pytest

from tests.training.conftest import tiny_config
from training.bulk.cleaning import Filters
from training.bulk.corpora import Plan, prepare_corpus
from training.bulk.run import prepare_run
from training.command.errors import ConfigError, RunError
from training.command.parser import Parser
from training.config.load import load_config, override
from training.data.batches import text_batches
from training.data.corpus import load
from training.data.pair_files import CorpusError
from training.data.pipeline import make_dataset
from training.data.plan import Batching
from training.data.prepared import Prepared
from training.data.splits import load_prepared, load_split
from training.fit import train as texts
from training.presets.options import add_configuration, configuration
from training.runs.begin import make_sides
from training.runs.files import RunFiles
from training.runs.tokens import read_batches


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    pairs = load("phrasebook-en-fr", "train", limit=503, seed=3).pairs()
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "pairs.tsv").write_text(text, encoding="utf-8")
    config = tiny_config("train_limit=0", f"data=tsv:{folder / 'pairs.tsv'}")
    prepare_corpus(folder / "corpus", config, Plan(Filters(), processes=0))
    return folder / "corpus"


def test_a_run_goes_on_with_what_it_began_with_alone(corpus, tmp_path, monkeypatch):
    """Up to where its model is built, which takes seconds."""

    class BuiltError(Exception):
        """Its data were as they were."""

    def build(*args):
        raise BuiltError

    monkeypatch.setattr(texts, "build_model", build)
    prepare_run(tiny_config("train_limit=0", f"data=prepared:{corpus}"), tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.toml")
    with pytest.raises(BuiltError):
        texts.resume(tmp_path / "run")
    with pytest.raises(BuiltError):
        texts.train(config, tmp_path / "new")
    dev, read = load_split(config, "dev")  # which training.evaluate scores
    assert (len(dev.sources), read["split"]) == (len(load_prepared(config)[1].sources), "dev")
    with pytest.raises(CorpusError, match="no texts of 'test'; it has dev"):
        load_split(config, "test")
    manifest = corpus / "manifest.json"
    text = manifest.read_text()
    try:
        manifest.write_text(text.replace('"train.source.ids": "', '"train.source.ids": "0'))
        with pytest.raises(RunError, match="no longer has the sentences"):
            texts.resume(tmp_path / "run")
    finally:
        manifest.write_text(text)


def test_the_preset_of_a_size_takes_the_tokenizers_of_what_is_prepared(corpus):
    parser = Parser(prog="what")
    add_configuration(parser)
    config = configuration(parser.parse_args(["--data", f"prepared:{corpus}"]))
    assert (config.source_tokenizer, config.target_vocab_size) == ("words", 300)
    assert config.epochs == 40  # of the small ones
    train = text_batches(Batching.of(config), *Prepared(config.data).sides(), training=True)
    inputs, labels = next(iter(make_dataset(train).as_numpy_iterator()))
    assert len(inputs["source"]) == len(labels) == config.batch_size


def test_other_backends_read_it_where_it_lies(corpus, tmp_path):
    config = tiny_config("train_limit=97", f"data=prepared:{corpus}")
    counts = prepare_run(config, tmp_path / "run")
    assert counts["train"] == 97
    files = RunFiles(tmp_path / "run")
    assert not list(files.tokens.glob("train.*"))
    found = read_batches(load_config(files.config), files.tokens)[0].epoch(3)
    sides = Prepared(f"prepared:{corpus}").sides(97, config.seed)
    for (inputs, labels), (expected, target) in zip(
        found, text_batches(Batching.of(config), *sides, training=True).epoch(3), strict=True
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
    with pytest.raises(
        CorpusError, match=r"extra_data expected texts as data\. Received: prepared:"
    ):
        load_prepared(override(config, ["extra_data=phrasebook-en-fr"]))
    for name in ("source", "target"):
        (tmp_path / f"{name}.tokenizer").write_text("{}")
    with pytest.raises(RunError, match="have different tokenizers: prepare the corpus with"):
        make_sides(config, data, tmp_path)
    with pytest.raises(ConfigError, match="expected no extra_data: put all of it into one file"):
        prepare_corpus(
            tmp_path / "new", override(config, ["extra_data=phrasebook-en-fr"]), Plan(Filters(), 0)
        )
    taken = Plan(Filters(), 0, tokenizers=corpus)
    pairs = tmp_path / "p.tsv"
    pairs.write_text("He sleeps.\tIl dort.\n" * 3 + "She eats.\tElle mange.\n")
    again = override(config, [f"data=tsv:{pairs}", f"dev=tsv:{pairs}"])
    prepare_corpus(tmp_path / "c", again, taken)
    assert (tmp_path / "c/source.tokenizer").read_bytes() == data.tokenizers[0].read_bytes()
