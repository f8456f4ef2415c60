"""A choice that the user did not make yields to what the user set."""

import dataclasses
import itertools

import pytest

from tests.training.conftest import tiny_config, untrained
from training import train
from training.command.errors import ConfigError
from training.config._settle import settled
from training.config.schema import NEEDS, PRESETS, Config, load_config, needs_of, read_settings
from training.presets._options import OF_MODEL
from training.runs.run import load_run

SETTINGS = [
    *("copy=true", "copy_masking=0.3", "label_smoothing=0.1", "concat_pairs=0.5", "r_drop=1.0"),
    *("batch_tokens=900", "batch_size=1", "attention=hard_monotonic", "attention=none"),
    *("attention=dot", "order=bahdanau", "readout=maxout", "decoder_layers=2", "gate=true"),
    *("attention_heads=2", "input_feeding=true", "coverage_loss=1.0", "distribution=entmax15"),
    *("tie_embeddings=true", "tie_embeddings=false", "readout_units=77", "embedding_size=77"),
    *("source_tokenizer=sentencepiece", "target_tokenizer=letters", "source_tokenizer=words"),
]
FILES = sorted([*PRESETS.glob("*.toml"), *PRESETS.glob("own/*.toml")])
CONFLICTS = {  # pairs of settings that cannot be combined, whoever chose them
    *((f"attention={key}", "copy=true") for key in ("hard_monotonic", "none")),
    *((f"attention={key}", "copy_masking=0.3") for key in ("hard_monotonic", "none")),
    *(
        ("attention=hard_monotonic", f"{key}={value}")
        for key, value in (
            ("order", "bahdanau"),
            ("readout", "maxout"),
            ("decoder_layers", 2),
            ("gate", "true"),
            ("attention_heads", 2),
            ("input_feeding", "true"),
            ("coverage_loss", 1.0),
            ("distribution", "entmax15"),
            ("tie_embeddings", "true"),
        )
    ),
    ("attention=none", "coverage_loss=1.0"),
    *(
        ("copy=true", setting)
        for setting in (
            "label_smoothing=0.1",
            "concat_pairs=0.5",
            "r_drop=1.0",
            "source_tokenizer=sentencepiece",
        )
    ),
    *(
        ("copy_masking=0.3", setting)
        for setting in (
            "label_smoothing=0.1",
            "concat_pairs=0.5",
            "r_drop=1.0",
            "source_tokenizer=sentencepiece",
        )
    ),
    ("batch_tokens=900", "concat_pairs=0.5"),
    ("batch_size=1", "concat_pairs=0.5"),
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_pair_of_settings_fits_each_preset_unless_the_pair_itself_cannot_be(file):
    config = load_config(file)
    for pair in itertools.combinations(SETTINGS, 2):
        chosen = read_settings(pair)
        keys = {setting.partition("=")[0] for setting in pair}
        if len(keys) < 2 or not all(map(config.has_key, keys)) or config.target == "label":
            continue
        if pair in CONFLICTS or pair[::-1] in CONFLICTS:
            with pytest.raises(ConfigError):
                settled(config, chosen)
            continue
        found, yielded = settled(config, chosen)
        assert {key: getattr(found, key) for key in chosen} == chosen, pair
        others = {*yielded, *chosen}
        same = {key for key, value in vars(found).items() if value == getattr(config, key)}
        assert {*vars(config)} - others <= same, pair


def test_a_setting_that_fits_changes_nothing_else():
    config = load_config(PRESETS / "own" / "small.toml")
    found, yielded = settled(config, {"epochs": 7, "label_smoothing": 0.2})
    assert not yielded
    assert found == dataclasses.replace(config, epochs=7, label_smoothing=0.2)


def test_every_setting_that_needs_others_can_be_turned_off():
    """Each needs a value of some key; chosen otherwise, the setting yields."""
    for setting, needs in NEEDS.items():
        name, _, value = setting.partition(" = ")
        on = {name: value or {"copy": True, "copy_masking": 0.3, "batch_tokens": 9}[name]}
        config, _ = settled(Config(), on)
        for key, needed in needs.items():
            others = {"luong": "bahdanau", "attentional": "maxout", "softmax": "sparsemax"}
            if isinstance(needed, bool):
                other = not needed
            else:
                other = others.get(needed, "a=1" if needed == "" else None)
                other = other or (0.5 if isinstance(needed, float) else 2)
            found, yielded = settled(config, {key: other})
            assert name in yielded
            assert setting not in dict(needs_of(vars(found)))


def test_the_recipe_of_copying_runs_on_own_sentences(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["red", "green", "blue", "cold", "warm", "small", "large", "old", "new"]
    texts = [(words[n % 9], words[n % 7], words[n % 5]) for n in range(230)]
    lines = [
        f"The {a} {b} man of {n} saw {c} it .\t{c} he saw {b} and {a} {n} too .\n"
        for n, (a, b, c) in enumerate(texts)
    ]
    (tmp_path / "my.tsv").write_text("".join(lines))
    command = ["--data", "tsv:my.tsv", "--dry-run"]
    for setting in ("source_tokenizer=words", "target_tokenizer=words", "copy=true"):
        command += ["--set", setting]
    train.main(command)
    assert "label_smoothing=0.0" in capsys.readouterr().out


def test_a_run_that_starts_from_another_has_its_model(tmp_path, monkeypatch, capsys):
    """Whatever would be chosen from the data alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("".join(f"a{n}b\tb{n}c\n" for n in range(260)))
    small = ["source_tokenizer=characters", "target_tokenizer=characters", "order=bahdanau"]
    config = tiny_config("data=tsv:a.tsv", *small)
    untrained(config, tmp_path / "first")
    train.main(["--data", "tsv:a.tsv", "--init", "first", "--dry-run"])
    said = capsys.readouterr().out
    assert "source     characters, " in said
    assert "target     characters, " in said
    found = load_run(tmp_path / "first").config
    assert {key for key in OF_MODEL if not hasattr(found, key)} == set()
