import json

import pytest

from serving.page._card import read_card


def manifest(tmp_path, config, kept, history):
    run = {"name": "r", "config": config, "history": history, "parameters": 12345}
    path = tmp_path / "manifest.json"
    about = {
        "created": "today",
        "settings": {"beam_width": 3, "coverage_penalty": 0.0, "tables": False},
        "versions": {"keras": "3"},
    }
    path.write_text(json.dumps({**about, "runs": [run | {"kept": kept}]}))
    return path


@pytest.mark.parametrize(
    ("config", "figures", "model", "said"),
    [
        (
            {"encoder": "gru", "decoder": "lstm"},
            ("bleu", 30.0, 41.234, 12.0),
            "gru encoder, lstm decoder",
            ("BLEU", "41.23"),
        ),
        (
            {"decoder": "gru"},
            ("cer", 5.0, 0.123, 2.0),
            "convolutional encoder, gru decoder",
            ("CER", "0.123"),
        ),
        ({"encoder": "gru"}, ("auc", 0.7, 0.90812, 0.6), "gru encoder", ("AUC", "0.9081")),
    ],
)
def test_the_card_has_the_figures_of_the_epoch_that_was_exported(
    tmp_path, config, figures, model, said
):
    key, *values = figures
    history = [{"epoch": n, key: value, "val_loss": 9} for n, value in enumerate(values, 1)]
    history[1]["val_loss"] = 1  # the second is the best by any score
    config = {"data": "d", "attention": "additive", **config}
    found = read_card(manifest(tmp_path, config, history[1], history))
    assert found.score == f"{said[0]} {said[1]} on dev"
    card = found.lines
    assert card["Model"] == model
    assert card["Training"] == "3 epochs"
    assert [line for line in card.items() if line[0].endswith("dev")] == [
        (f"{said[0]}, epoch 2, dev", said[1])
    ]
    assert (card["Weights"], card["Search"]) == ("12,345", "beam width 3")


@pytest.mark.parametrize(
    ("kept", "by", "heading"),
    [
        ({"chrf": 99.123, "exact": 98.4, "val_perplexity": 1.2}, "auto", "Exact matches 98.4"),
        ({"bleu": 30.5, "chrf": 50.0, "val_perplexity": 4.5}, "perplexity", "Perplexity 4.5"),
    ],
)
def test_the_heading_has_the_figure_that_the_epoch_was_chosen_by(tmp_path, kept, by, heading):
    config = {"data": "d", "attention": "none", "keep_epoch": by}
    card = read_card(manifest(tmp_path, config, {"epoch": 1, **kept}, [{"epoch": 1, **kept}]))
    assert card.score == f"{heading} on dev"


@pytest.mark.parametrize(
    ("data", "shown", "languages"),
    [
        ("phrasebook-en-zh", "phrasebook-en-zh", ("en", "zh")),
        ("tsv:/home/someone/secret/my-own.tsv", "tsv:my-own.tsv", ()),
        ("parallel:/a/train.de,../b/train.en", "parallel:train.de,train.en", ("de", "en")),
        (r"images:C:\Users\someone\shots", "images:shots", ()),
    ],
)
def test_the_card_names_languages_and_not_where_the_data_lies(tmp_path, data, shown, languages):
    history = [{"epoch": 1, "bleu": 2}]
    card = read_card(manifest(tmp_path, {"data": data, "attention": "none"}, history[0], history))
    assert (card.lines["Data"], card.languages) == (shown, languages)


def test_what_is_no_manifest_is_one_line(tmp_path):
    path = tmp_path / "manifest.json"
    for text in ("[]", "{}", "{", '{"runs": []}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"manifest.json (is not|cannot be)"):
            read_card(path)
