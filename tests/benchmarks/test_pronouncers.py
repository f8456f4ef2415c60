"""The answers of other pronouncers, in CMUdict's phones."""

import importlib
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.benchmarks.test_pronunciation_peers import COUNTING
from training.data.pair_files import Split

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pronouncers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("pronouncers")


@pytest.mark.parametrize(
    ("ipa", "phones"),
    [
        ("ˈɑːɹ ɹ ɑː n s ə n", "AA1 R AA0 N S AH0 N"),
        ("ˌæ b ɐ ɾ ɪ  ˈɛ l oʊ", "AE2 B AH0 T IH0 EH1 L OW0"),
        ("ɐ k ˈoːɹ d iə n z", "AH0 K AO1 R D IY0 AH0 N Z"),
        ("f ˈaɪɚ", "F AY1 ER0"),
        ("", ""),
    ],
)
def test_each_sound_has_its_phones(ipa, phones, pronouncers):
    assert pronouncers.arpabet(ipa) == phones


def test_an_unknown_sound_is_not_passed_over(pronouncers):
    with pytest.raises(KeyError, match="ɮ"):
        pronouncers.arpabet("ɮ ə")


@pytest.mark.tensorflow
def test_the_network_of_g2p_en_is_two_grus(tmp_path, pronouncers):
    rng = np.random.default_rng(11)
    units, size = 13, 7
    layers, weights = {}, {}
    for side, tokens in (("enc", pronouncers.GRAPHEMES), ("dec", pronouncers.PHONEMES)):
        shapes = {"w_ih": (3 * units, size), "w_hh": (3 * units, units)}
        shapes |= {"b_ih": (3 * units,), "b_hh": (3 * units,), "emb": (len(tokens), size)}
        for name, shape in shapes.items():
            weights[f"{side}_{name}"] = rng.normal(size=shape).astype("float32")
        layers[side] = keras.layers.GRUCell(units, reset_after=True)
        layers[side].build((None, size))
        order = np.r_[units : 2 * units, :units, 2 * units : 3 * units]  # Keras: z, r, n
        own = [weights[f"{side}_{name}"][order] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
        layers[side].set_weights([own[0].T, own[1].T, np.stack(own[2:])])
    weights["fc_w"] = rng.normal(size=(len(pronouncers.PHONEMES), units)).astype("float32")
    weights["fc_b"] = rng.normal(size=len(pronouncers.PHONEMES)).astype("float32")
    np.savez(tmp_path / "network.npz", **weights)

    def say(word):
        state = np.zeros((1, units), "float32")
        for letter in word:
            place = "abcdefghijklmnopqrstuvwxyz".find(letter)
            number = 3 + place if place >= 0 else 1
            state, _ = layers["enc"](weights["enc_emb"][[number]], [state])
        state, _ = layers["enc"](weights["enc_emb"][[2]], [state])
        said, last = [], 2
        for _ in range(20):
            state, _ = layers["dec"](weights["dec_emb"][[last]], [state])
            last = int(np.argmax(np.asarray(state)[0] @ weights["fc_w"].T + weights["fc_b"]))
            if last == 3:
                break
            said.append(pronouncers.PHONEMES[last])
        return " ".join(said)

    words = ["abc", "z'y", "queue"]
    assert pronouncers.g2p_en(tmp_path / "network.npz")(words) == [say(word) for word in words]


def test_a_word_is_scored_with_stress_and_without(pronouncers):
    found = pronouncers.score(["AH0 B", "AE1 K"], [["AH1 B"], ["AE0", "AE1 K"]])
    assert found == {
        "wer": 50.0,
        "per": 25.0,
        "wer_without_stress": 0.0,
        "per_without_stress": 0.0,
    }


def test_phonetisaurus_learns_from_the_training_words(tmp_path, monkeypatch, pronouncers):
    command = tmp_path / "bin" / "phonetisaurus"
    command.parent.mkdir()
    command.write_text(COUNTING)
    command.chmod(0o755)
    split = Split(["ab", "ba"], [["AE1 B"], ["B AH0", "B AA1"]])
    monkeypatch.setattr(pronouncers.corpus, "load", lambda *_: split)
    say = pronouncers.counted(str(command.parent / "python"), "cmudict")
    assert say(["ba", "ab"]) == ["", "AE1 B"]
