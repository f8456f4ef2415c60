"""Configurations: files, settings, what does not fit, and what yields to a setting."""

import dataclasses
import itertools
import re
import tomllib
from pathlib import Path

import pytest

from keras_attention import distributions, mechanisms
from tests.training.conftest import tiny_config, untrained
from tests.training.data.files import write
from training import train
from training.command.errors import ConfigError
from training.config import schema
from training.config._keys import ATTENTIONS
from training.config._settle import settled
from training.config.schema import (
    NEEDS,
    PRESETS,
    SOURCES,
    Config,
    load_config,
    load_preset,
    needs_of,
    override,
    read_settings,
)
from training.presets._options import OF_MODEL, own_preset
from training.runs.run import load_run
from training.sources._source import Source
from training.sources.kinds import SOURCE_KINDS, source_class

WORDS, ALIGNED = "source_tokenizer=words target_tokenizer=words", "attention=hard_monotonic"
G2P = {"g2p-low", "g2p-medium", "g2p-high"}


def test_every_preset_loads_and_names_its_data():
    assert len(schema.preset_names()) > 10
    for name in schema.preset_names():
        config = load_preset(name)
        assert config.data == name or name in G2P
        assert (config.metric == "bleu-zh") == name.endswith("zh")
        assert (config.metric == "symbols") == (config.target_tokenizer == "symbols")


ODD = "".join(map(chr, [*range(1, 300), 0x2028, 0xFEFF, 0xFFFF, 0x1F600, 0x20BB7, 0x10FFFF]))


@pytest.mark.parametrize("name", [ODD, "tsv:/data/😀/𠮷.tsv", '"""', "\\u0041\r\n"], ids=len)
def test_a_configuration_reads_back_as_it_was_written(tmp_path, name):
    path = tmp_path / "config.toml"
    config = Config(
        data=name, learning_rate=3e-4, tie_embeddings=False, concat_pairs=0.5, gate=True
    )
    config.save(path)
    assert tomllib.loads(path.read_text(encoding="utf-8"))["data"] == name
    assert load_config(path) == config


def test_settings_take_the_type_of_their_key():
    settings = ["epochs=3", "dropout=0.5", "bidirectional=false", "attention=general"]
    config = override(Config(), [*settings, "learning_rate=1"])
    values = {"epochs": 3, "dropout": 0.5, "bidirectional": False, "attention": "general"}
    assert config == Config(**values, learning_rate=1.0)
    assert isinstance(config.learning_rate, float)


REFUSED = """
epoch=3 -> There is no key 'epoch'. Did you mean epochs
epochs -> --set needs KEY=VALUE, such as --set epochs=40, but it is epochs
epochs=many -> epochs needs a whole number, but it is 'many'
epochs=0 -> epochs needs at least 1, but it is 0
max_answer=2x -> max_answer needs auto, or a bound such as 2x+10 or 1.25x+4, but it is 2x
dropout=1 -> dropout needs at least 0 and less than 1, but it is 1.0
attention_options=units=3 -> attention_options cannot set units. Use --set attention_units=
attention_options=wide -> attention_options needs KEY=VALUE pairs with commas between them, but
coverage_loss=-1 -> coverage_loss needs at least 0, but it is -1.0
learning_rate=-1 -> learning_rate needs more than 0, but it is -1.0
learning_rate=1e999 -> learning_rate needs a finite number, but it is inf
keep_epoch=bleu -> keep_epoch needs one of auto, best_score, best_perplexity
other_attention=dot -> other_attention needs one of "", additive, hard_monotonic
concat_pairs=0.5 batch_size=1 -> concat_pairs needs a batch_size of 2 or more, but it is 1
source=events attention=dot -> attention needs none or additive for source = events, but
copy=true label_smoothing=0.1 source_tokenizer=words -> label_smoothing = 0.0, but they are \
"sentencepiece", 0.1. Add --set target_tokenizer=words --set label_smoothing=0
copy=true WORDS attention=none -> attention = none needs copy = false, but it is true
copy_masking=0.1 WORDS -> needs copy = true, but it is false. Add --set copy=true
ALIGNED -> hard_monotonic needs order = "luong"
ALIGNED order=luong copy=true WORDS -> hard_monotonic needs copy =
ALIGNED order=luong attention_heads=2 -> hard_monotonic needs attention_heads =
ALIGNED order=luong decoder_layers=2 -> hard_monotonic needs decoder_layers =
tie_embeddings=true -> readout_units = 256, but it is 512. Add --set readout_units=256
seed=4294967296 -> seed needs at most 4294967295, but it is 4294967296
epochs=1MANY -> epochs needs at most 2147483647
data=tsv:\udcff -> data needs text in Unicode, but it is 'tsv:\\udcff'
image_width=100 -> image_width has no effect on source = text. Remove --set image_width=
source=image encoder=lstm -> has no effect on source = image
source=image encoder=gru -> has no effect on source = image
source=image source_vocab_size=500 -> has no effect on source = image
source=image extra_data=a -> has no effect on source = image
"""


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_settings_that_do_not_fit_are_one_clear_line(row):
    settings, said = row.split(" -> ")
    for name, text in {"WORDS": WORDS, "ALIGNED": ALIGNED, "MANY": "0" * 400}.items():
        settings = settings.replace(name, text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        override(Config(), settings.split())


def test_a_run_that_has_begun_can_change_what_its_weights_do_not_depend_on():
    config = Config(epochs=3)
    assert schema.changed_later(config, ["epochs=5", "learning_rate=0.1"]).epochs == 5
    assert schema.changed_later(config, ["decoder_units=512"]) == config  # as it is
    for setting in ("decoder_units=3", "data=tsv:other", "seed=2", "source_vocab_size=9"):
        with pytest.raises(ConfigError, match=r"already has its .*You can still change: .*epochs"):
            schema.changed_later(config, [setting])


@pytest.mark.parametrize("pairs", [3, 20_000, 10**8])
def test_own_data_has_settings_by_its_amount(pairs):
    config, file = schema.own_data_preset(pairs)
    assert (Path(__file__).parents[2] / file).is_file()
    larger, _ = schema.own_data_preset(100 * pairs)
    assert larger.source_vocab_size >= config.source_vocab_size
    assert larger.dropout <= config.dropout


def test_a_preset_can_be_a_file_of_ones_own(tmp_path):
    path = write(tmp_path / "mine.toml", '\ufeffabout.task = "mine"\nepochs = 3\n')
    assert load_preset(str(path)) == Config(epochs=3)


def test_a_key_that_a_source_does_not_have_is_not_written(tmp_path):
    path = tmp_path / "config.toml"
    config = override(Config(), ["source=image", "target_tokenizer=characters", "gate=true"])
    with pytest.raises(ConfigError, match="encoder_units has no effect on source = image"):
        override(Config(encoder_units=17), ["source=image"])
    config.save(path)
    assert "image_width" in path.read_text()
    assert "encoder_units" not in path.read_text()
    assert load_config(path) == config
    Config().save(path)
    assert "image" not in path.read_text()


def test_mechanisms_and_distributions_are_those_of_the_layers():
    assert set(ATTENTIONS) - {"none", "hard_monotonic"} == set(mechanisms.BY_NAME)
    declared = Config.__dataclass_fields__["distribution"].metadata["choices"]
    assert declared == tuple(distributions.BY_NAME)


@pytest.mark.parametrize(("said", "meant"), [("bahdanau", "additive"), ("luong", "general")])
def test_a_mechanism_by_its_authors_is_taken_and_told(said, meant, capsys):
    assert override(Config(), [f"attention={said}"]).attention == meant
    assert f"attention = {said} is used as {meant}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("target_bound=3x+7", "max_answer = 3x+7"),
        ("keep_by=perplexity", "keep_epoch = best_perplexity"),
        ("keep_epoch=score", "keep_epoch = best_score"),
        ("join=0.25", "concat_pairs = 0.25"),
        ("consistency=2", "r_drop = 2"),
        ("validation_limit=7", "max_dev_translations = 7"),
        ("readout=deep", "readout = maxout"),
    ],
)
def test_an_old_name_of_a_setting_works_and_is_named(tmp_path, old, new, capsys):
    schema._note.cache_clear()
    config = override(Config(), [old])
    assert config == override(Config(), [new.replace(" ", "")]) != Config()
    assert f"is now {new}\n" in capsys.readouterr().err
    key, value = old.split("=")
    value = value if value[0].isdigit() and "x" not in value else repr(value)
    assert load_config(write(tmp_path / "config.toml", f"{key} = {value}\n")) == config


def test_each_kind_has_a_reader_keys_and_settings_for_own_data():
    assert SOURCE_KINDS.keys() == SOURCES.keys()
    for name, kind in SOURCE_KINDS.items():
        for form in kind.forms:
            file = own_preset(f"{form}:somewhere", {})
            assert (file is None) == kind.tokens
            if file is not None:
                config = load_config(file)
                assert config.source == name
                assert issubclass(source_class(config.source), Source)


SETTINGS = """copy=true copy_masking=0.3 label_smoothing=0.1 concat_pairs=0.5 r_drop=1.0
batch_tokens=900 batch_size=1 attention=hard_monotonic attention=none attention=dot order=bahdanau
readout=maxout decoder_layers=2 gate=true attention_heads=2 input_feeding=true coverage_loss=1.0
distribution=entmax15 tie_embeddings=true tie_embeddings=false readout_units=77 embedding_size=77
source_tokenizer=sentencepiece target_tokenizer=letters source_tokenizer=words"""
COPIES = "label_smoothing=0.1 concat_pairs=0.5 r_drop=1.0 source_tokenizer=sentencepiece"
NOT_ALIGNED = """order=bahdanau readout=maxout decoder_layers=2 gate=true attention_heads=2
input_feeding=true coverage_loss=1.0 distribution=entmax15 tie_embeddings=true"""
NEVER = {  # what cannot be combined, whoever chose it
    "attention=hard_monotonic": f"copy=true copy_masking=0.3 {NOT_ALIGNED}",
    "attention=none": "copy=true copy_masking=0.3 coverage_loss=1.0",
    "copy=true": COPIES,
    "copy_masking=0.3": COPIES,
    "concat_pairs=0.5": "batch_tokens=900 batch_size=1",
}
CONFLICTS = {frozenset((one, other)) for one, others in NEVER.items() for other in others.split()}
FILES = sorted([*PRESETS.glob("*.toml"), *PRESETS.glob("own/*.toml")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_pair_of_settings_fits_each_preset_unless_the_pair_itself_cannot_be(file):
    config = load_config(file)
    for pair in itertools.combinations(SETTINGS.split(), 2):
        chosen = read_settings(pair)
        keys = {setting.partition("=")[0] for setting in pair}
        if len(keys) < 2 or not all(map(config.has_key, keys)) or config.target == "label":
            continue
        if {*pair} in CONFLICTS:
            with pytest.raises(ConfigError):
                settled(config, chosen)
            continue
        found, yielded = settled(config, chosen)
        assert {key: getattr(found, key) for key in chosen} == chosen, pair
        same = {key for key, value in vars(found).items() if value == getattr(config, key)}
        assert {*vars(config)} - {*yielded, *chosen} <= same, pair


def test_a_setting_that_fits_changes_nothing_else():
    config = load_config(PRESETS / "own" / "small.toml")
    chosen = {"epochs": 7, "label_smoothing": 0.2}
    found, yielded = settled(config, chosen)
    assert not yielded
    assert found == dataclasses.replace(config, **chosen)


def test_what_a_setting_makes_needless_or_impossible_yields():
    tried = Config(order="luong", other_attention="hard_monotonic")
    assert settled(tried, {"attention": "additive"})[0].other_attention == ""
    tied = Config(tie_embeddings=True, readout_units=256)
    assert not settled(tied, {"readout_units": 77, "embedding_size": 55})[0].tie_embeddings


def test_every_setting_that_needs_others_can_be_turned_off():
    """Each needs a value of some key; chosen otherwise, the setting yields."""
    for setting, needs in NEEDS.items():
        name, _, value = setting.partition(" = ")
        on = {name: value or {"copy": True, "copy_masking": 0.3, "batch_tokens": 9}[name]}
        config, _ = settled(Config(), on)
        for key, needed in needs.items():
            others = {
                "luong": "bahdanau",
                "attentional": "maxout",
                "softmax": "sparsemax",
                "": "a=1",
            }
            other = 0.5 if isinstance(needed, float) else others.get(needed, 2)
            other = not needed if isinstance(needed, bool) else other
            found, yielded = settled(config, {key: other})
            assert name in yielded
            assert setting not in dict(needs_of(vars(found)))


def test_the_recipe_of_copying_runs_on_own_sentences(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["red", "green", "blue", "cold", "warm", "small", "large", "old", "new"]
    texts = [(n, words[n % 9], words[n % 7], words[n % 5]) for n in range(230)]
    form = "The {1} {2} man of {0} saw {3} it .\t{3} he saw {2} and {1} {0} too .\n"
    write(tmp_path / "my.tsv", "".join(form.format(*text) for text in texts))
    settings = [word for text in (*WORDS.split(), "copy=true") for word in ("--set", text)]
    train.main(["--data", "tsv:my.tsv", "--dry-run", *settings])
    assert "label_smoothing=0.0" in capsys.readouterr().out


def test_a_run_that_starts_from_another_has_its_model(tmp_path, monkeypatch, capsys):
    """Whatever would be chosen from the data alone."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.tsv", [(f"a{n}b", f"b{n}c") for n in range(260)])
    small = ["source_tokenizer=characters", "target_tokenizer=characters", "order=bahdanau"]
    untrained(tiny_config("data=tsv:a.tsv", *small), tmp_path / "first")
    train.main(["--data", "tsv:a.tsv", "--init", "first", "--dry-run"])
    said = capsys.readouterr().out
    assert "source     characters, " in said
    assert "target     characters, " in said
    found = load_run(tmp_path / "first").config
    assert {key for key in OF_MODEL if not hasattr(found, key)} == set()
