"""Words of CMUdict said by espeak-ng, g2p-en's network, Phonetisaurus and models of this library.

    python benchmarks/pronouncers.py --g2p-en checkpoint20.npz --run runs/cmudict-stress

A word is right where it matches one of its pronunciations: with stress, and without. espeak-ng says
General American in the International Phonetic Alphabet; `ARPABET` says what each of its sounds is
in CMUdict's. `checkpoint20.npz` is in the wheel of the PyPI package g2p-en, whose dictionary is
left out: it has these words. Its network was trained on CMUdict, and most likely on these words.
Phonetisaurus learns from the training words, in `$KERAS_ATTENTION_PEERS/phonetisaurus`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers import phonetisaurus
from peers.environments import installation, peer_python

sys.path.insert(0, str(Path(__file__).parents[1]))

from training.data import corpus
from training.score import metrics

Say = Callable[[Sequence[str]], list[str]]
VOWELS = {
    **{"ə": "AH", "ɐ": "AH", "ʌ": "AH", "ɪ": "IH", "ᵻ": "IH", "i": "IY", "iː": "IY", "ʊ": "UH"},
    **{"uː": "UW", "ɛ": "EH", "æ": "AE", "ɑː": "AA", "ɔː": "AO", "ɔ": "AO", "oː": "AO"},
    **{"oʊ": "OW", "eɪ": "EY", "aɪ": "AY", "aʊ": "AW", "ɔɪ": "OY", "ɜː": "ER", "ɚ": "ER"},
}
CONSONANTS = {
    **{"p": "P", "b": "B", "t": "T", "d": "D", "k": "K", "ɡ": "G", "f": "F", "v": "V", "θ": "TH"},
    **{"ð": "DH", "s": "S", "z": "Z", "ʃ": "SH", "ʒ": "ZH", "h": "HH", "tʃ": "CH", "dʒ": "JH"},
    **{"m": "M", "n": "N", "ŋ": "NG", "l": "L", "ɹ": "R", "w": "W", "j": "Y"},
    **{"ɾ": "T", "ʔ": "T", "x": "K"},  # a flap may be D as well; a glottal stop; Scottish ch
}
SEVERAL = {  # one symbol of espeak-ng, several sounds of CMUdict
    **{"əl": "ə l", "n̩": "ə n", "iə": "i ə", "aɪə": "aɪ ə", "aɪɚ": "aɪ ɚ", "ɑːɹ": "ɑː ɹ"},
    **{"ɔːɹ": "ɔː ɹ", "oːɹ": "oː ɹ", "ɛɹ": "ɛ ɹ", "ʊɹ": "ʊ ɹ", "ɪɹ": "ɪ ɹ"},
}
STRESS = {"ˈ": "1", "ˌ": "2"}
GRAPHEMES = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]  # of g2p-en
_PHONES = """AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH
EH0 EH1 EH2 ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0
OY1 OY2 P R S SH T TH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH"""
PHONEMES = ["<pad>", "<unk>", "<s>", "</s>", *_PHONES.split()]


def arpabet(ipa: str) -> str:
    """Return espeak-ng's sounds, between spaces, as CMUdict's phones with stress.

    Raises:
        KeyError: for a sound that is not in the tables.
    """
    phones: list[str] = []
    for sound in ipa.split():
        mark = STRESS.get(sound[0], "0")
        sound = sound.lstrip("ˈˌ")
        for place, one in enumerate(SEVERAL.get(sound, sound).split()):
            if one in VOWELS:
                phones.append(VOWELS[one] + (mark if place == 0 else "0"))
            elif phones[-1:] != ["R"] or one != "ɹ":  # "ɑːɹ ɹ" is one R
                phones.append(CONSONANTS[one])
    return " ".join(phones)


def espeak(words: Sequence[str]) -> list[str]:
    """Say each word by a command of its own: together they would be a sentence."""
    command = ["espeak-ng", "-q", "-v", "en-us", "--ipa", "--sep= "]
    said = [
        subprocess.run([*command, "--", word], capture_output=True, text=True, check=True).stdout
        for word in words
    ]
    return [arpabet(ipa) for ipa in said]


def g2p_en(file: Path) -> Say:
    """Return g2p-en's network: a GRU that reads the letters, and one that says the phones."""
    weights = dict(np.load(file))  # read from the file once

    def cell(side: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        read = x @ weights[f"{side}_w_ih"].T + weights[f"{side}_b_ih"]
        kept = h @ weights[f"{side}_w_hh"].T + weights[f"{side}_b_hh"]
        (r, z, n), (kept_r, kept_z, kept_n) = np.split(read, 3), np.split(kept, 3)
        r, z = 1 / (1 + np.exp(-r - kept_r)), 1 / (1 + np.exp(-z - kept_z))
        return (1 - z) * np.tanh(n + r * kept_n) + z * h

    def say_one(word: str) -> str:
        h = np.zeros(weights["enc_w_hh"].shape[1], "float32")
        for letter in [*word, "</s>"]:
            known = letter if letter in GRAPHEMES else "<unk>"
            h = cell("enc", weights["enc_emb"][GRAPHEMES.index(known)], h)
        said = [PHONEMES.index("<s>")]
        while len(said) <= 20:
            h = cell("dec", weights["dec_emb"][said[-1]], h)
            said.append(int((weights["fc_w"] @ h + weights["fc_b"]).argmax()))
            if PHONEMES[said[-1]] == "</s>":
                break
        return " ".join(PHONEMES[number] for number in said[1:] if PHONEMES[number] != "</s>")

    return lambda words: [say_one(word) for word in words]


def counted(python: str, data: str) -> Say:
    """Return Phonetisaurus's model of the training words of a corpus."""

    def say(words: Sequence[str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            model = phonetisaurus.Pronouncer(python, Path(folder))
            model.learn(corpus.load(data, "train").pairs())
            return model.say(words)

    return say


def ours(path: Path) -> Say:
    """Return a run of this library."""
    from training.decode.asked import Search
    from training.decode.texts import make_translator
    from training.runs.run import load_run

    return make_translator([load_run(path)], Search(beam_width=5))


def score(said: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Words and phones that are wrong, in percent, with stress and without."""
    plain = [_plain(text) for text in said], [list(map(_plain, each)) for each in references]
    stressed = metrics.score("phones", said, references)
    unstressed = metrics.score("phones", *plain)
    return {
        "wer": stressed["wer"],
        "per": stressed["per"],
        "wer_without_stress": unstressed["wer"],
        "per_without_stress": unstressed["per"],
    }


def _plain(phones: str) -> str:
    return re.sub(r"\d", "", phones)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("cmudict-stress", "cmudict")
    parser.add_argument("--data", choices=names, default=names[0], help="default: %(default)s")
    parser.add_argument("--split", default="dev", help="of them; default: dev")
    parser.add_argument("--limit", type=int, metavar="N", help="words, at random")
    parser.add_argument("--g2p-en", type=Path, metavar="FILE", help="its checkpoint20.npz")
    parser.add_argument("--run", type=Path, metavar="DIR", help="trained on them")
    options = parser.parse_args(arguments)
    split = corpus.load(options.data, options.split, limit=options.limit)
    pronouncers: dict[str, Say] = {"espeak-ng": espeak}
    if options.g2p_en:
        pronouncers["g2p-en"] = g2p_en(options.g2p_en)
    if python := peer_python("phonetisaurus"):
        pronouncers["phonetisaurus"] = counted(python, options.data)
    else:
        print(f"phonetisaurus skipped, to install it: {installation('phonetisaurus')}", flush=True)
    if options.run:
        pronouncers["ours"] = ours(options.run)
    result: dict[str, Any] = {"words": len(split.sources)}
    for name, say in pronouncers.items():
        result[name] = score(say(split.sources), split.references)
        row = "  ".join(f"{key} {value:.1f}" for key, value in result[name].items())
        print(f"{name:13} {row}", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
