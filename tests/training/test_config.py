import dataclasses

import pytest

from training.config import Config, ConfigError, load_config, load_preset, override, preset_names


def test_every_preset_loads_and_names_its_data():
    assert set(preset_names()) == {
        *("phrasebook-en-fr", "phrasebook-en-zh"),
        *("tatoeba-en-fr", "tatoeba-en-de", "tatoeba-en-es", "tatoeba-en-zh"),
        *("multi30k-en-de", "multi30k-en-fr"),
        *("cmudict", "sigmorphon2021-fre", "sigmorphon2021-eng"),
    }
    for name in preset_names():
        config = load_preset(name)
        assert config.data == name
        assert (config.metric == "bleu-zh") == name.endswith("zh")
        assert (config.metric == "phones") == (config.target_tokenizer == "symbols")


def test_a_configuration_reads_back_as_it_was_written(tmp_path):
    config = Config(data='tsv:a "b"\\c.tsv', learning_rate=3e-4, tie_embeddings=False, epochs=3)
    config.save(tmp_path / "config.toml")
    assert load_config(tmp_path / "config.toml") == config


def test_settings_take_the_type_of_their_key():
    config = override(
        Config(),
        ["epochs=3", "dropout=0.5", "bidirectional=false", "attention=general", "learning_rate=1"],
    )
    assert (config.epochs, config.dropout, config.bidirectional) == (3, 0.5, False)
    assert config.attention == "general"
    assert isinstance(config.learning_rate, float)
    same = dataclasses.replace(
        config,
        epochs=Config.epochs,
        dropout=Config.dropout,
        bidirectional=Config.bidirectional,
        attention=Config.attention,
        learning_rate=Config.learning_rate,
    )
    assert same == Config()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("epoch=3", "unknown key 'epoch'; did you mean epochs"),
        ("zzz=3", "unknown key 'zzz'"),
        ("epochs", "expected KEY=VALUE. Received: epochs"),
        ("epochs=many", "epochs expected a value of type int. Received: 'many'"),
        ("epochs=1.5", "epochs expected a value of type int"),
        ("epochs=0", "epochs expected at least 1. Received: 0"),
        ("dropout=1", "dropout expected 0 <= value < 1. Received: 1.0"),
        ("variational_dropout=-0.1", "variational_dropout expected 0 <= value < 1"),
        ("plateau_factor=1", "plateau_factor expected 0 < value < 1. Received: 1.0"),
        ("schedule=step", "schedule expected one of cosine, constant, plateau"),
        ("decoder=layer_norm", "decoder expected one of simple_rnn, gru, lstm, layer_norm_gru"),
        ("attention=nome", "attention expected one of none, additive"),
        ("bidirectional=perhaps", "bidirectional expected a value of type bool"),
        ("tie_embeddings=true", "tie_embeddings expected readout_units = embedding_size"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_clear_line(setting, said):
    with pytest.raises(ConfigError) as caught:
        override(Config(), [setting])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_names_those_that_are_there():
    with pytest.raises(ConfigError, match=r"unknown preset 'tatoeba'; there are .*tatoeba-en-fr"):
        load_preset("tatoeba")


def test_a_broken_file_is_a_configuration_error(tmp_path):
    (tmp_path / "config.toml").write_text("epochs = = 3")
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load_config(tmp_path / "config.toml")
