"""Lexicons of a pronouncer, as its command writes them and as sherpa-onnx reads them."""

import json
import math
import re
from pathlib import Path

import pytest

from serving.check._onnx import check_folder
from serving.portable.read import LocalTranslator
from tests.serving.portable.read.conftest import parsed
from tests.serving.portable.read.voice import Voice
from tests.training.data.files import DICTIONARIES, LEXICON


def test_the_block_of_the_guide_runs(model, tmp_path, capsys):
    guide = Path(__file__).parents[4] / "docs" / "guides" / "pronouncer.md"
    (block,) = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    own = tmp_path / "my.tsv"
    lines = (
        "ezerkilencszázharminchét\te z",
        "mae'r\tm ai r",
        "mae'r\tm a r",
        "",
        "cafe\u0301\tk a f E",
        "ខ្មែរ\tkʰ m ae",
        "ci\tk i",
    )
    own.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    space = {}
    exec(block.replace("models/mine", str(model)).replace("my.tsv", str(own)), space)
    assert "mae’r m ai r" in capsys.readouterr().out.splitlines()
    found = space["pronounce"](
        "Mae’r ‘CI’ yn y café cafe\u0301: mae'r zebra ខ្មែរ ខ្លែ o’clock 1937."
    )
    answers = LocalTranslator(model).translate(["yn", "zebra", "o'clock"])
    assert found == {
        **{"mae’r": "m ai r", "ci": "k i", "yn": answers[0].text},
        **{"y": LocalTranslator(model).translate(["y"])[0].text, "café": "k a f E"},
        **{"mae'r": "m ai r", "zebra": answers[1].text, "ខ្មែរ": "kʰ m ae", "ខ្លែ": ""},
        **{"o’clock": answers[2].text, "1937": "e z"},
    }


def test_notes_of_dictionaries_are_no_phones(run, tmp_path):
    """Of CMUdict, pocketsphinx, Kaldi with probabilities, and MFA; as lists are trained on."""
    own = tmp_path / "own.tsv"
    for name, text in DICTIONARIES.items():
        own.write_text(text)
        found = run("read\nd'or\nc", "--format", "tsv", "--lexicon", own)
        assert found == (0, [f"{word}\t{phones}" for word, phones in LEXICON], ""), name
    _, lines, _ = run("cat", "--format", "mfa", "--nbest", "2")
    own.write_text("\n".join(lines))  # its own lines are read again
    assert run("cat", "--format", "mfa", "--lexicon", own)[1] == [
        re.sub(r"\t[0-9.]+\t", "\t", line) for line in lines
    ]


def test_answers_are_those_of_the_translator_with_the_least_probability_of_a_token(run, model):
    words = ["cat", "zebra", "o'clock"]
    translator = LocalTranslator(model)
    best = [translation.text for translation in translator.translate(words)]
    _, lines, _ = run("\n".join(words), "--format", "json")
    answers = [json.loads(line) for line in lines]
    assert [answer["phones"] for answer in answers] == best
    for answer, score in zip(answers, translator.score(words, best), strict=True):
        said = score.log_probs[: 2 * len(answer["word"]) + 10]  # one that is cut has no end
        assert answer["probability"] == pytest.approx(math.exp(min(said)), abs=2e-4)
        assert answer["source"] == "model"


def test_melo_has_a_tone_for_each_phone(run, tmp_path, capfd):
    """Those of MeloTTS's own lexicon of English: 7 and, of a vowel, its stress and 1."""
    own, tokens = tmp_path / "own.tsv", ["_", ".", "hh", "ah", "l", "ow"]
    own.write_text("hello\tHH AH0 L OW1\nah\tAH\n")
    (tmp_path / "phones.txt").write_text("".join(f"{x} {n}\n" for n, x in enumerate(tokens)))
    form = "--format", "sherpa", "--voice", "melo", "--words-from-text", "--lexicon", own
    status, lines, err = run("Hello, ah", *form, "--voice-tokens", tmp_path / "phones.txt")
    assert (status, lines, err) == (0, ["hello hh ah l ow 7 8 7 9", "ah ah 7"], "")
    voice = Voice(tmp_path, tokens, "\n".join(lines), capfd, "melo")
    assert voice.read("HELLO ah") == (["hh", "ah", "l", "ow", "ah"], [])


def test_what_is_missing_is_written_and_strict_fails(run, tmp_path):
    own, file = tmp_path / "own.tsv", tmp_path / "missing.tsv"
    own.write_text("cat\tp1\ndog\tXX\n")
    (tmp_path / "phones.txt").write_text("p1 1\n" + "".join(f"p{n} {n}\n" for n in range(2, 99)))
    words = [f"{letter}9" for letter in "abcdefgh"]
    form = "--format", "sherpa", "--words-from-text", "--lexicon", own, "--write-skipped", file
    status, _, err = run(" ".join(["cat", *words, "œuf"]), *form)
    assert status == 0
    assert "left out, training never saw 9: a9, b9, c9, d9, e9 and 3 more\n" in err
    assert max(map(len, err.splitlines())) < 120
    found = dict(line.split("\t") for line in file.read_text().splitlines())
    assert {*words, "œ"} <= {*found}
    assert found["a9"] == "training never saw 9"
    assert "cat" not in found
    assert run("cat", *form, "--strict")[0] == 0
    assert file.read_text() == ""
    assert run("cat a9", *form, "--strict")[0] == 1
    assert run("dog", *form, "--voice-tokens", tmp_path / "phones.txt")[0] == 1
    assert file.read_text() == "dog\tthe voice has no token for XX\n"


def test_maps_follow_one_another_and_stress_that_is_not_known_is_told(run, tmp_path):
    own, more = tmp_path / "own.tsv", tmp_path / "more.tsv"
    own.write_text("cup\tK AH P\nso\tS OW1\nbird\tB ER D\nday\tD EY2\n")
    more.write_text("p\tpʰ\n", encoding="utf-8")
    form = "--format", "tsv", "--lexicon", own, "--rename-phones", "arpabet-ipa"
    told = (
        "Warning: AH and ER without marks of stress are written ə and ɚ, as 89 % and 82 % of "
        "CMUdict's are; a model of cmudict-stress has the marks\n"
    )
    lines = ["cup\tk ə pʰ", "bird\tb ɚ d"]
    assert run("cup\nbird", *form, "--rename-phones", more) == (0, lines, told)
    assert run("so\nday", *form, "--rename-phones", "kokoro") == (0, ["so\ts ˈO", "day\td ˌA"], "")


@pytest.mark.parametrize("form", ["sherpa", "kaldi", "tsv", "mfa", "json"])
def test_each_format_has_its_lines(form, run, listed):
    own = listed("cat K AE T", "cat K AA T", "René R AH N EY")
    if form == "sherpa":  # of one pronunciation alone
        assert run("cat\n", "--format", form, *own)[:2] == (0, ["cat K AE T"])
        return
    _, lines, _ = run("cat\n\nRené\r\ncat\n", "--format", form, *own)
    rows = [("cat", "K AE T"), ("cat", "K AA T"), ("René", "R AH N EY")]
    assert parsed(form, lines) == rows
    if form == "json":
        rest = {"probability": 1.0, "source": "lexicon"}
        assert [json.loads(line) for line in lines] == [
            {"word": word, "phones": phones, **rest} for word, phones in rows
        ]
    else:
        between = " " if form == "kaldi" else "\t"
        assert lines == [between.join(row) for row in rows]


def test_what_the_model_never_saw_is_named_and_left_out(run):
    status, lines, err = run("'cat'\nnaïve\nCat\nñu\n" + "a" * 99, "--format", "tsv")
    assert status == 0
    assert [line.split("\t")[0] for line in lines] == ["'cat'", "Cat"]
    assert len({line.split("\t")[1] for line in lines}) == 1  # quotation marks have no sound
    assert err.splitlines()[:2] == [
        "Warning: left out, training never saw ̈: naïve",
        "Warning: left out, training never saw ̃: ñu",
    ]
    assert f"{'a' * 99}" in err.splitlines()[2]
    assert err.splitlines()[3:] == [
        "Warning: read in small letters, the only ones that training saw: Cat"
    ]


FILES = {
    "wrong": b"cat\tK AE T\ncat\n",
    "empty": b"\n",
    "long": b"a 1\nbb 2\n",
    "latin": b"a\tA\n\xe9\tE\n",
    "commas": b"cat,K AE T\ndog,D AO G\n",
    "bars": b"K | k\nAE | a\n",
    "wide": "cat\tK AE T\n".encode("utf-16"),
}
KOKORO = "is not of a Kokoro voice, whose tokens are single characters. It has: 'bb'"


@pytest.mark.parametrize(
    ("text", "words", "status", "message"),
    [
        (b"cat", "--format sherpa --nbest 2", 2, "--format sherpa takes no --nbest"),
        (b"cat", "--format tsv --align", 2, "--format takes no --align"),
        (b"cat", "--words-from-text", 2, "--words-from-text needs --format"),
        (b"cat", "--strict", 2, "--strict needs --format"),
        (b"cat", "--spell-out x.tsv", 2, "--spell-out needs --format"),
        (b"cat", "--format mfa --voice kokoro", 2, "--voice needs --format sherpa"),
        (b"cat", "--format mfa --nbest 99", 1, "expected --nbest of 1 to "),
        (b"cat", "--format tsv --lexicon no.tsv", 1, "No such file or directory: no.tsv"),
        (b"cat", "--format tsv --lexicon wrong", 1, "line 2 needs two columns with a tab"),
        (b"cat", "--format tsv --voice-tokens wrong", 1, "needs a token and its number, as in"),
        (b"cat", "--format tsv --voice-tokens empty", 1, "has no tokens"),
        (b"cat", "--format sherpa --voice kokoro --voice-tokens long", 1, KOKORO),
        (b"cat", "--format tsv --lexicon latin", 1, "line 2 is not UTF-8 text"),
        (b"cat", "--format tsv --lexicon wide", 1, "iconv -f UTF-16 -t UTF-8"),
        (b"cat", "--format tsv --lexicon commas", 1, "has commas instead of tabs"),
        (b"cat", "--format tsv --rename-phones bars", 1, "has bars instead of tabs"),
        (b"\n \n", "--format tsv", 1, "no word: give words as arguments or on standard input"),
        (b"ice cream\n", "--format tsv", 1, "one word a line. For a text, add --words-from-text"),
        (b"a\ncaf\xe9\n", "--format tsv", 1, "the standard input, line 2 is not UTF-8 text"),
        (b"cat", "--format tsv --local TRANSLATOR", 1, "is no pronouncer, which has letters as s"),
    ],
)
def test_a_mistake_is_one_line(
    text, words, status, message, run, tmp_path, monkeypatch, onnx_translator
):
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    words = words.replace("TRANSLATOR", str(onnx_translator))
    found, lines, err = run(text, *words.split())
    assert (found, lines, err.count("\n"), err[:7]) == (status, [], 1, "error: ")
    assert message in err


def test_the_check_asks_for_letters_that_training_never_saw_without_a_warning(model):
    assert check_folder(model) == []  # a warning would be an error
