import json

import pytest

from serving.page.card import read_card


def manifest(tmp_path, config, last):
    run = {"name": "r", "config": config, "history": [{}, last], "parameters": 12345}
    path = tmp_path / "manifest.json"
    about = {"created": "today", "settings": {"beam_width": 3}, "versions": {"keras": "3"}}
    path.write_text(json.dumps({**about, "runs": [run]}))
    return path


@pytest.mark.parametrize(
    ("config", "last", "model", "figure"),
    [
        (
            {"encoder": "gru", "decoder": "lstm"},
            {"bleu": 41.234},
            "gru encoder, lstm decoder",
            ("BLEU", "41.23"),
        ),
        (
            {"decoder": "gru"},
            {"exact": 99.6},
            "convolutional encoder, gru decoder",
            ("Exact", "99.6"),
        ),
        ({"encoder": "gru"}, {"auc": 0.90812}, "gru encoder", ("AUC", "0.9081")),
    ],
)
def test_the_card_knows_texts_images_and_histories(tmp_path, config, last, model, figure):
    config = {"data": "d", "attention": "additive", **config}
    card = read_card(manifest(tmp_path, config, last))
    assert card["Model"] == model
    assert card[f"{figure[0]}, last epoch, dev"] == figure[1]
    assert (card["Weights"], card["Search"]) == ("12,345", "beam width 3")


def test_what_is_no_manifest_is_one_line(tmp_path):
    path = tmp_path / "manifest.json"
    for text in ("[]", "{}", "{", '{"runs": []}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"manifest.json is not the manifest of an export"):
            read_card(path)
