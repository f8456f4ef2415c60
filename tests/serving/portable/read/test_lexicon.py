"""Lexicons of a pronouncer, as its command writes them and as sherpa-onnx reads them."""

import json
import math
import random
import re
import shutil
import unicodedata
from pathlib import Path

import pytest

from serving.check._onnx import check_folder
from serving.client._translate import main
from serving.portable.read import LocalTranslator
from serving.portable.read import _lexicon as lexicon
from serving.portable.read import _voices as voices
from serving.portable.read._lexicon import Pronouncer
from serving.portable.read._model import tokens_of
from tests.serving.portable.read.voice import PUNCTUATION, Voice
from tests.training.data.files import DICTIONARIES, LEXICON
from training.data.letters import alphabet_of


def test_no_word_of_a_text_is_lost(run, tmp_path, capfd):
    """500 words, of which one's own list has 400, in texts with capitals and punctuation."""
    rng = random.Random(5)
    spelled = {"".join(rng.choices("abcdefghijklmno", k=rng.randrange(2, 9))) for _ in range(900)}
    words = sorted(spelled)[:500]
    rng.shuffle(words)
    own = tmp_path / "own.tsv"
    listed = [words[0], *rng.sample(words[1:], 399)]
    own.write_text("".join(f"{word}\tp{len(word)} ʊə\n" for word in listed))
    tokens = ["_", "", *PUNCTUATION, "p", *"0123456789", "ʊ", "ə"]
    phones = tmp_path / "phones.txt"
    phones.write_text("".join(f"{token} {number}\n" for number, token in enumerate(tokens)))
    text = " ".join(rng.choice((str, str.title, str.upper))(word) for word in words) + "."
    status, lines, err = run(
        text, "--format", "sherpa", "--words-from-text", "--lexicon", own, "--voice-tokens", phones
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


QUOTED = """'Colonel 'tis ‘Cat’ “dog” «mir» ‹mir› „cat‟ ‚dog’ "cat" 「dog」 (mir) dogs' dogs’
'em rock 'n' roll don't don’t l’eau ’cause 'cause"""
LISTED = ["colonel", "'tis", "cat", "dog", "mir", "'em", "rock", "'n'", "roll", "don't", "l'eau"]
LISTED += ["'cause", "dogs"]


def quoted_list(folder):
    own = folder / "own.tsv"
    phones = {word: f"q{number}" for number, word in enumerate(LISTED)}
    own.write_text("".join(f"{word}\t{phone}\n" for word, phone in phones.items()))
    return own, phones


def listed_as(word, phones):
    """The listed word that a word of the text is."""
    word = word.lower().replace("’", "'")
    ends = "'‘“”«»‹›„‟‚\"「」()"
    forms = word, word.lstrip(ends), word.rstrip(ends), word.strip(ends)
    return next(form for form in forms if form in phones)


@pytest.mark.parametrize("kind", ["vits", "kokoro", "matcha"])
def test_a_word_in_quotes_of_any_kind_is_spoken_as_listed(kind, run, tmp_path, capfd):
    own, phones = quoted_list(tmp_path)
    words = "--format", "sherpa", "--words-from-text", "--lexicon", own, "--voice", kind
    _, lines, _ = run(QUOTED, *words)
    tokens = ["_", "", *PUNCTUATION, *phones.values()]
    voice = Voice(tmp_path, tokens, "\n".join(lines) + "\n", capfd, kind)
    apart = {"don’t", "l’eau", "’cause"} if kind != "kokoro" else set()
    for word in QUOTED.split():
        if word in apart:  # the voice reads two words
            continue
        read, lost = voice.read(word)
        assert phones[listed_as(word, phones)] in read, word
        assert not [each for each in lost if any(map(str.isalnum, each))], word


def mfa_words(text, table):
    """The words that MFA 3 looks up: `SanitizeFunction` and `split_clitics`, without clitics."""
    text = re.sub("[’‘]", "'", text.lower())
    for word in re.split(r"[\s、。，“„”\"()–,.:;—?!【】「」『』〝〟‚‹›«»‟]+", text):
        if not word.strip("'"):
            continue
        forms = word, word[1:] if word[0] == "'" else word, word[:-1] if word[-1] == "'" else word
        yield next((form for form in forms if form in table), word.strip("'"))


def test_a_word_in_quotes_is_in_the_dictionaries_of_mfa_and_kaldi(run, tmp_path):
    own, phones = quoted_list(tmp_path)
    for form, separator in (("mfa", "\t"), ("kaldi", " "), ("tsv", "\t")):
        status, lines, err = run(QUOTED, "--format", form, "--words-from-text", "--lexicon", own)
        assert (status, err) == (0, "")
        table = dict(line.split(separator) for line in lines)
        assert {word.replace("’", "'"): phone for word, phone in table.items()} == phones
        if form == "mfa":
            assert {*mfa_words(QUOTED, table)} == {*table}
        else:  # a text is looked up as it stands, once its quotes are away
            assert {"don't", "don’t", "colonel", "cat"} <= {*table}


def test_a_listed_word_with_signs_is_found_as_it_stands(run, tmp_path):
    own = tmp_path / "own.tsv"
    words = ["bo-ki", "col·legi", "dr.", "c++", "bo-ki-san", "צה״ל", "ג׳ירפה", "-ben", "'tis"]
    own.write_text("".join(f"{word}\tq{n}\n" for n, word in enumerate(words)), encoding="utf-8")
    form = "--words-from-text", "--lexicon", own, "--strict", "--format"
    text = "BO-KI, (Col·legi) “Dr. bo-ki-san” c++; צה\"ל ג׳ירפה bo\u00ad-\u200bki -ben 'tis"
    for sort, between in (("mfa", "\t"), ("kaldi", " "), ("tsv", "\t")):
        status, lines, err = run(text, *form, sort)
        assert (status, err) == (0, ""), sort
        found = dict(line.split(between) for line in lines)
        assert [*found.values()] == [f"q{n}" for n in (0, 1, 2, 4, 3, 5, 6, 7, 8)], sort
    lines = run("bo\u2011ki bo\u2010ki-san.", *form, "tsv")[1]
    assert [line.split("\t")[1] for line in lines] == ["q0", "q4"]
    # No listed word is found within another one.
    text = "bo-ki's xbo-ki a-ben bob-kid"
    words = [line.split("\t")[0] for line in run(text, *form, "tsv")[1]]
    assert words == ["bo", "ki's", "xbo", "ki", "a", "ben", "bob", "kid"]


def test_a_listed_word_is_found_without_its_joiners_and_with_others(run, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text("می\u200cخواهم\tp1\nක්ර\tp2\nكتاب\tp3\n", encoding="utf-8")
    text = "می\u200cخواهم میخواهم ක්\u200dර ක්ර كتـاب"
    status, lines, err = run(
        text, "--words-from-text", "--lexicon", own, "--format", "tsv", "--strict"
    )
    assert (status, err) == (0, "")
    assert [line.split("\t")[1] for line in lines] == ["p1", "p1", "p2", "p2", "p3"]


def test_signs_within_words_of_any_script_join_letters(run):
    text = "paral‧lel don`t don´t می\u200cخواهم a·b · ma\u00adgyar e.g."
    words = ["paral‧lel", "don`t", "don´t", "می\u200cخواهم", "a·b", "magyar", "e", "g"]
    assert voices.spoken_words(text) == words
    _, lines, err = run("don`t don´t don't", "--words-from-text", "--format", "tsv")
    assert len({line.split("\t")[1] for line in lines}) == 1
    assert (len(lines), err) == (3, "")


def test_a_word_in_two_forms_of_unicode_is_one_word(run, tmp_path):
    (own := tmp_path / "own.tsv").write_text("café\tk a\n", encoding="utf-8")
    for form in ("tsv", "kaldi", "mfa", "json"):
        for text in ("\n".join, " ".join):
            words = ["--words-from-text"] if text([*"ab"]) == "a b" else []
            two = text(["café", "cafe\u0301", "ca\u00adfé", "\ufeffcafé"])
            status, lines, err = run(two, *words, "--lexicon", own, "--format", form)
            assert (status, len(lines), err) == (0, 1, ""), form


HYPHENS = "szent-ben Szent-Ben -ben ben- szent--ben 'szent-ben' #szent #szent-ben ben"


@pytest.mark.parametrize("kind", ["matcha", "kokoro"])
@pytest.mark.parametrize("phone", ["b", "bb"])
def test_no_word_with_a_hyphen_or_a_hash_is_lost(kind, phone, run, tmp_path, capfd):
    own = tmp_path / "own.tsv"
    own.write_text(f"szent\ta\nben\t{phone}\n#szent\ta a\n")
    words = "--words-from-text", "--format", "sherpa", "--voice", kind, "--lexicon", own, "--strict"
    status, lines, err = run(HYPHENS, *words)
    assert (status, err) == (0, "")
    tokens = ["_", "", *PUNCTUATION, "a", phone]
    voice = Voice(tmp_path, tokens, "\n".join([*lines, f"x {phone}"]) + "\n", capfd, kind)
    for text in HYPHENS.split():
        read, lost = voice.read(text)
        assert [word for word in lost if any(map(str.isalnum, word))] == [], text
        expected = ["a"] * ("szent" in text.lower()) + [phone] * ("ben" in text.lower())
        whole = kind == "kokoro" or phone == "bb"  # else the voice drops the hash
        expected = ["a", *expected] if "#" in text and whole else expected
        assert [token for token in read if token in ("a", phone)] == expected, text


def test_a_part_that_is_missing_makes_the_whole_missing(run, tmp_path):
    own, file = tmp_path / "own.tsv", tmp_path / "missing.tsv"
    own.write_text("ben\tb\n")
    words = "--words-from-text", "--format", "sherpa", "--voice", "matcha", "--lexicon", own
    status, lines, _ = run("1937-ben", *words, "--write-skipped", file, "--strict")
    assert (status, lines) == (1, ["ben b"])
    found = dict(line.split("\t") for line in file.read_text().splitlines())
    assert {*found} == {"1937", "1937-ben"}


def test_a_listed_word_with_a_hyphen_is_what_kokoro_reads(run, tmp_path, capfd):
    own = tmp_path / "own.tsv"
    own.write_text("szent\ta\nben\tb\nszent-ben\tc\n")
    words = "--words-from-text", "--format", "sherpa", "--voice", "kokoro", "--lexicon", own
    _, lines, _ = run("Szent-Ben ben-szent", *words)
    voice = Voice(tmp_path, ["_", "", *PUNCTUATION, *"abc"], "\n".join(lines), capfd, "kokoro")
    read = [
        [x for x in voice.read(text)[0] if x in "abc" and x] for text in ("szent-ben", "ben-szent")
    ]
    assert read == [["c"], ["b", "a"]]


@pytest.fixture
def turkish(model, monkeypatch, tmp_path):
    """A model whose alphabet has ı and no I, and letters with marks."""
    folder = tmp_path / "turkish"
    shutil.copytree(model, folder)
    state = json.loads((model / "source.json").read_text())
    letters = "abcdefghijklmnopqrstuvwxyzı'\u0301\u0308\u0327"
    tokens = [*letters, *state["tokens"][len(letters) :]]
    state |= alphabet_of("letters", [*tokens, "öüşçé"], tokens)._asdict()
    (folder / "source.json").write_text(json.dumps(state))
    return folder


def test_capitals_of_turkish_are_small_as_its_alphabet_has_them(turkish, run, tmp_path, capfd):
    own = tmp_path / "own.tsv"
    listed = ["ışık", "ısparta", "istanbul", "Iğdır"]
    own.write_text("".join(f"{word}\tp{n}\n" for n, word in enumerate(listed)), encoding="utf-8")
    words = "--lexicon", own, "--local", turkish, "--strict"
    text = "Isparta Işık IŞIK İstanbul I\u0307STANBUL IĞDIR"
    form = "--format", "mfa", "--words-from-text"
    lines = ["ısparta\tp1", "ışık\tp0", "istanbul\tp2", "ığdır\tp3"]
    assert run(text, *form, *words) == (0, lines, "")
    found = run(text.replace(" ", "\n"), "--format", "tsv", *words)[1]
    assert [line.split("\t")[1] for line in found] == ["p1", "p0", "p0", "p2", "p2", "p3"]
    form = "--format", "sherpa", "--voice", "kokoro", "--words-from-text"
    _, lines, _ = run(text, *form, *words)
    tokens = ["_", "", *PUNCTUATION, "p0", "p1", "p2", "p3"]
    voice = Voice(tmp_path, tokens, "\n".join(lines), capfd, "kokoro")
    for word, phone in zip(text.split(), ["p1", "p0", "p0", "p2", "p2", "p3"], strict=True):
        assert phone in voice.read(unicodedata.normalize("NFC", word))[0], word
    spelled = Pronouncer(turkish)
    assert spelled.unreadable("IIDIR") == ""
    assert spelled.translate(["IIDIR"]) == spelled.translate(["ııdır"])


def test_a_letter_that_training_never_saw_as_a_whole_is_missing(turkish, run, tmp_path):
    file = tmp_path / "missing.txt"
    words = "--local", turkish, "--format", "tsv", "--write-skipped", file, "--strict"
    status, lines, err = run("köy\nbär\nnoe\u0308l\nKÖY\nşé", *words)
    assert (status, [line.split("\t")[0] for line in lines]) == (1, ["köy", "KÖY", "şé"])
    missing = ["bär\ttraining never saw ä", "noël\ttraining never saw ë"]
    assert file.read_text(encoding="utf-8").splitlines() == missing
    assert "training never saw ä: bär" in err


def test_a_word_that_lacks_phones_is_named(run, model, monkeypatch):
    (best,) = (each for _, (each,) in Pronouncer(model).pronounce(["cat"]))
    for fewest, named in ((len(best.phones) / 3, False), ((len(best.phones) + 1) / 3, True)):
        spelling = {"whole": 12, "window": 12, "context": 3, "fewest": fewest}
        manifest = json.loads((model / "manifest.json").read_text()) | {"spelling": spelling}
        monkeypatch.setattr("serving.portable.read._model.read_manifest", lambda _, m=manifest: m)
        _, lines, err = run("cat", "--format", "tsv")
        assert lines
        told = (
            "Warning: fewer phones for their letters than nearly all words of training have: cat\n"
        )
        assert err == (told if named else "")


def test_an_apostrophe_is_the_one_that_training_saw(run):
    words = "o'clock", "o’clock", "oʼclock"
    _, lines, err = run("\n".join(words), "--format", "tsv")
    assert [line.split("\t")[0] for line in lines] == [*words]
    assert len({line.split("\t")[1] for line in lines}) == 1
    assert err == ""


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
        assert run(words, "--format", form, "--lexicon", own)[:2] == (0, lines)
    _, lines, _ = run("", "--format", "json", "--lexicon", own, "René")
    answer = {"word": "René", "phones": "R AH N EY", "probability": 1.0, "source": "lexicon"}
    assert list(map(json.loads, lines)) == [answer]


def test_words_of_any_script_are_whole_and_of_equal_spellings_one(run, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text('cafe\u0301\tK AE F EY\ndon\'t\tD OW N T\n"мир"\t"M I R"\n', encoding="utf-8")
    words = "--words-from-text", "--lexicon", own, "--format"
    lines = ["мир\tM I R", "café\tK AE F EY", "don’t\tD OW N T"]
    assert run("Мир! «Café» — don’t, ‘мир’.", *words, "tsv") == (0, lines, "")
    for form in (words, words[1:]):
        assert run("Cafe\u0301", *form, "sherpa") == (0, ["café K AE F EY"], "")


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
        "Warning: left out, training never saw ̈: naïve",
        "Warning: left out, training never saw ̃: ñu",
    ]
    assert f"{'a' * 99}" in err.splitlines()[2]
    assert err.splitlines()[3:] == [
        "Warning: read in small letters, the only ones that training saw: Cat"
    ]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--format", "sherpa", "--nbest", "2"], 2, "--format sherpa takes no --nbest"),
        (["--format", "tsv", "--align"], 2, "--format takes no --align"),
        (["--words-from-text"], 2, "--words-from-text needs --format"),
        (["--strict"], 2, "--strict needs --format"),
        (["--spell-out", "x.tsv"], 2, "--spell-out needs --format"),
        (["--format", "mfa", "--voice", "kokoro"], 2, "--voice needs --format sherpa"),
        (["--format", "mfa", "--nbest", "99"], 1, "expected --nbest of 1 to "),
        (["--format", "tsv", "--lexicon", "none.tsv"], 1, "No such file or directory: none.tsv"),
        (["--format", "tsv", "--lexicon", "{wrong}"], 1, "line 2 needs two columns with a tab"),
        (
            ["--format", "tsv", "--voice-tokens", "{wrong}"],
            1,
            "needs a token and its number, as in",
        ),
        (["--format", "tsv", "--voice-tokens", "{empty}"], 1, "has no tokens"),
        (
            ["--format", "sherpa", "--voice", "kokoro", "--voice-tokens", "{long}"],
            *(1, "is not of a Kokoro voice, whose tokens are single characters. It has: 'bb'"),
        ),
        (["--format", "tsv", "--lexicon", "{latin}"], 1, "line 2 is not UTF-8 text"),
        (["--format", "tsv", "--lexicon", "{wide}"], 1, "iconv -f UTF-16 -t UTF-8"),
        (["--format", "tsv", "--lexicon", "{commas}"], 1, "has commas instead of tabs"),
        (["--format", "tsv", "--rename-phones", "{bars}"], 1, "has bars instead of tabs"),
    ],
)
def test_a_mistake_is_one_line(words, status, message, run, tmp_path):
    contents = {
        "wrong": b"cat\tK AE T\ncat\n",
        "empty": b"\n",
        "long": b"a 1\nbb 2\n",
        "latin": b"a\tA\n\xe9\tE\n",
    }
    contents |= {"commas": b"cat,K AE T\ndog,D AO G\n", "bars": b"K | k\nAE | a\n"}
    contents["wide"] = "cat\tK AE T\n".encode("utf-16")
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    paths = {name: tmp_path / name for name in contents}
    found, lines, err = run("cat", *(word.format(**paths) for word in words))
    assert (found, lines) == (status, [])
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_the_check_asks_for_letters_that_training_never_saw_without_a_warning(model):
    assert check_folder(model) == []  # a warning would be an error


def test_an_input_without_words_is_one_line(run):
    for text, message in (
        (b"\n \n", "no word: give words as arguments or on standard input"),
        (b"ice cream\n", "--format needs one word a line. For a text, add --words-from-text"),
        (b"cat\ncaf\xe9\n", "the standard input, line 2 is not UTF-8 text"),
    ):
        status, lines, err = run(text, "--format", "tsv")
        assert (status, lines, err.count("\n")) == (1, [], 1)
        assert err.startswith(f"error: {message}")


def test_a_model_that_is_no_pronouncer_is_one_line(onnx_translator, capsys):
    assert main(["--local", str(onnx_translator), "--format", "tsv", "cat"]) == 1
    err = capsys.readouterr().err
    assert "is no pronouncer, which has letters as sources and symbols as targets: it has" in err
    assert err.count("\n") == 1
