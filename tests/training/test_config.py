import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from keras_attention import distributions, mechanisms
from training.command.errors import ConfigError
from training.config import schema
from training.config._keys import ATTENTIONS
from training.config.schema import SOURCES, Config, load_config, load_preset, override
from training.presets._options import own_preset
from training.sources._source import Source
from training.sources.kinds import SOURCE_KINDS, source_class

WORDS, ALIGNED = "source_tokenizer=words target_tokenizer=words", "attention=hard_monotonic"
G2P = {"g2p-low", "g2p-medium", "g2p-high"}
OF_TEXTS = ("encoder=lstm", "source_vocab_size=500", "extra_data=a", "encoder=gru")


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
    config = override(
        Config(),
        ["epochs=3", "dropout=0.5", "bidirectional=false", "attention=general", "learning_rate=1"],
    )
    assert (config.epochs, config.dropout, config.bidirectional) == (3, 0.5, False)
    assert config.attention == "general"
    assert isinstance(config.learning_rate, float)
    changed = ("epochs", "dropout", "bidirectional", "attention", "learning_rate")
    same = {name: getattr(Config, name) for name in changed}
    assert dataclasses.replace(config, **same) == Config()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("epoch=3", "There is no key 'epoch'. Did you mean epochs"),
        ("epochs", "--set needs KEY=VALUE, such as --set epochs=40, but it is epochs"),
        ("epochs=many", "epochs needs a whole number, but it is 'many'"),
        ("epochs=0", "epochs needs at least 1, but it is 0"),
        (
            "max_answer=2x",
            "max_answer needs auto, or a bound such as 2x+10 or 1.25x+4, but it is 2x",
        ),
        ("dropout=1", "dropout needs at least 0 and less than 1, but it is 1.0"),
        (
            "attention_options=units=3",
            "attention_options cannot set units. Use --set attention_units=",
        ),
        (
            "attention_options=wide",
            "attention_options needs KEY=VALUE pairs with commas between them, but",
        ),
        ("coverage_loss=-1", "coverage_loss needs at least 0, but it is -1.0"),
        ("learning_rate=-1", "learning_rate needs more than 0, but it is -1.0"),
        ("learning_rate=1e999", "learning_rate needs a finite number, but it is inf"),
        ("keep_epoch=bleu", "keep_epoch needs one of auto, best_score, best_perplexity"),
        ("other_attention=dot", 'other_attention needs one of "", additive, hard_monotonic'),
        (
            "concat_pairs=0.5 batch_size=1",
            "concat_pairs needs a batch_size of 2 or more, but it is 1",
        ),
        (
            "source=events attention=dot",
            "attention needs none or additive for source = events, but",
        ),
        (
            "copy=true label_smoothing=0.1 source_tokenizer=words",
            'copy needs target_tokenizer = "words", label_smoothing = 0.0, but they are '
            '"sentencepiece", 0.1. Add --set target_tokenizer=words --set label_smoothing=0',
        ),
        (
            f"copy=true {WORDS} attention=none",
            "attention = none needs copy = false, but it is true",
        ),
        (f"copy_masking=0.1 {WORDS}", "needs copy = true, but it is false. Add --set copy=true"),
        (ALIGNED, 'hard_monotonic needs order = "luong"'),
        (f"{ALIGNED} order=luong copy=true {WORDS}", "hard_monotonic needs copy = "),
        (f"{ALIGNED} order=luong attention_heads=2", "hard_monotonic needs attention_heads = "),
        (f"{ALIGNED} order=luong decoder_layers=2", "hard_monotonic needs decoder_layers = "),
        ("tie_embeddings=true", "readout_units = 256, but it is 512. Add --set readout_units=256"),
        ("seed=4294967296", "seed needs at most 4294967295, but it is 4294967296"),
        (f"epochs=1{'0' * 400}", "epochs needs at most 2147483647"),
        ("data=tsv:\udcff", r"data needs text in Unicode, but it is 'tsv:\udcff'"),
        (
            "image_width=100",
            "image_width has no effect on source = text. Remove --set image_width=",
        ),
        *((f"source=image {key}", "has no effect on source = image") for key in OF_TEXTS),
    ],
)
def test_settings_that_do_not_fit_are_one_clear_line(settings, said):
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
    path = tmp_path / "mine.toml"
    path.write_text('\ufeffabout.task = "mine"\nepochs = 3\n')
    assert load_preset(str(path)) == Config(epochs=3)


def test_a_key_that_a_source_does_not_have_is_not_written(tmp_path):
    config = override(Config(), ["source=image", "target_tokenizer=characters", "gate=true"])
    with pytest.raises(ConfigError, match="encoder_units has no effect on source = image"):
        override(Config(encoder_units=17), ["source=image"])
    config.save(tmp_path / "config.toml")
    written = (tmp_path / "config.toml").read_text()
    assert "image_width" in written
    assert "encoder_units" not in written
    assert load_config(tmp_path / "config.toml") == config
    Config().save(tmp_path / "config.toml")
    assert "image" not in (tmp_path / "config.toml").read_text()


def test_mechanisms_and_distributions_are_those_of_the_layers():
    others = {"none", "hard_monotonic"}
    assert set(ATTENTIONS) - others == set(mechanisms.BY_NAME)
    declared = Config.__dataclass_fields__["distribution"].metadata["choices"]
    assert declared == tuple(distributions.BY_NAME)


@pytest.mark.parametrize(("said", "meant"), [("bahdanau", "additive"), ("luong", "general")])
def test_a_mechanism_by_its_authors_is_taken_and_told(said, meant, capsys):
    assert override(Config(), [f"attention={said}"]).attention == meant
    assert f"attention = {said} is used as {meant}" in capsys.readouterr().out


OLD = {
    "target_bound=3x+7": "max_answer = 3x+7",
    "keep_by=perplexity": "keep_epoch = best_perplexity",
    "keep_epoch=score": "keep_epoch = best_score",
    "join=0.25": "concat_pairs = 0.25",
    "consistency=2": "r_drop = 2",
    "validation_limit=7": "max_dev_translations = 7",
    "readout=deep": "readout = maxout",
}


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_an_old_name_of_a_setting_works_and_is_named(tmp_path, old, new, capsys):
    schema._note.cache_clear()
    config = override(Config(), [old])
    assert config == override(Config(), [new.replace(" ", "")]) != Config()
    assert f"is now {new}\n" in capsys.readouterr().err
    key, value = old.split("=")
    file = tmp_path / "config.toml"
    file.write_text(
        f"{key} = {value if value[0].isdigit() and 'x' not in value else repr(value)}\n"
    )
    assert load_config(file) == config


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
