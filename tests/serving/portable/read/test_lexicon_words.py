"""Words of a text or a list as speech software looks them up: none is lost."""

import json
import random
import re
import shutil
import unicodedata

import pytest

from serving.portable.read import _voices as voices
from serving.portable.read._pronouncer import Pronouncer
from tests.serving.portable.read.conftest import of_form, parsed
from tests.serving.portable.read.voice import PUNCTUATION, Voice
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


PHONES = {word: f"q{number}" for number, word in enumerate(LISTED)}


def phone_of(word):
    """The phone of the listed word that a word of the text is."""
    word = word.lower().replace("’", "'")
    ends = "'‘“”«»‹›„‟‚\"「」()"
    forms = word, word.lstrip(ends), word.rstrip(ends), word.strip(ends)
    return next(PHONES[form] for form in forms if form in PHONES)


@pytest.mark.parametrize("kind", ["vits", "kokoro", "matcha"])
def test_a_word_in_quotes_of_any_kind_is_spoken_as_listed(kind, run, listed, tmp_path, capfd):
    own = listed(*map(" ".join, PHONES.items()))
    _, lines, _ = run(QUOTED, "--words-from-text", *own, *of_form(kind))
    tokens = ["_", "", *PUNCTUATION, *PHONES.values()]
    voice = Voice(tmp_path, tokens, "\n".join(lines) + "\n", capfd, kind)
    apart = {"don’t", "l’eau", "’cause"} if kind != "kokoro" else set()
    for word in {*QUOTED.split()} - apart:  # of which the voice reads two words each
        read, lost = voice.read(word)
        assert phone_of(word) in read, word
        assert not [each for each in lost if any(map(str.isalnum, each))], word


def mfa_words(text, table):
    """The words that MFA 3 looks up: `SanitizeFunction` and `split_clitics`, without clitics."""
    text = re.sub("[’‘]", "'", text.lower())
    for word in re.split(r"[\s、。，“„”\"()–,.:;—?!【】「」『』〝〟‚‹›«»‟]+", text):
        if not word.strip("'"):
            continue
        forms = word, word[1:] if word[0] == "'" else word, word[:-1] if word[-1] == "'" else word
        yield next((form for form in forms if form in table), word.strip("'"))


def test_a_word_in_quotes_is_in_the_dictionaries_of_mfa_and_kaldi(run, listed):
    own = listed(*map(" ".join, PHONES.items()))
    for form in ("mfa", "kaldi", "tsv"):
        status, lines, err = run(QUOTED, *of_form(form), "--words-from-text", *own)
        assert (status, err) == (0, "")
        table = dict(parsed(form, lines))
        assert {word.replace("’", "'"): phone for word, phone in table.items()} == PHONES
        if form == "mfa":
            assert {*mfa_words(QUOTED, table)} == {*table}
        else:  # a text is looked up as it stands, once its quotes are away
            assert {"don't", "don’t", "colonel", "cat"} <= {*table}


SIGNS = "bo-ki:0 col·legi:1 dr.:2 c++:3 bo-ki-san:4 צה״ל:5 ג׳ירפה:6 -ben:7 'tis:8"
# Lists, "word:phones" each, formats, a text, and its words with phones, "*" for any word.
FOUND = [
    (SIGNS, "mfa kaldi tsv", "BO-KI, (Col·legi) “Dr. bo-ki-san” c++", "*:0 *:1 *:2 *:4 *:3"),
    (SIGNS, "tsv", "צה\"ל ג׳ירפה bo\u00ad-\u200bki -ben 'tis", "*:5 *:6 *:0 *:7 *:8"),
    (SIGNS, "tsv", "bo\u2011ki bo\u2010ki-san.", "*:0 *:4"),
    ("می\u200cخواهم:1 ක්ර:2 كتاب:3", "tsv", "می\u200cخواهم میخواهم", "*:1 *:1"),
    ("می\u200cخواهم:1 ක්ර:2 كتاب:3", "tsv", "ක්\u200dර ක්ර كتـاب", "*:2 *:2 *:3"),
    ("café:k", "tsv kaldi mfa json", "café cafe\u0301 ca\u00adfé \ufeffcafé", "café:k"),
    ("café:k", "tsv kaldi mfa json", "café\ncafe\u0301\nca\u00adfé\n\ufeffcafé", "*:k"),
    ("cafe\u0301:K don't:D мир:M", "tsv", "Мир! «Café» — don’t, ‘мир’.", "мир:M café:K don’t:D"),
    ("cafe\u0301:K", "vits", "Cafe\u0301", "café:K"),
    ("read:1 read_VBD:2", "tsv kaldi mfa kokoro", "read_VBD read", "read_vbd:2 read:1"),
]


@pytest.mark.parametrize(("rows", "forms", "text", "wanted"), FOUND)
def test_a_listed_word_is_found_in_whichever_form_it_stands(rows, forms, text, wanted, run, listed):
    own = listed(*(row.replace(":", " ") for row in rows.split(" ")))
    words = ["--words-from-text"] if "\n" not in text else []
    for form in forms.split():
        status, lines, err = run(text, *words, *own, *of_form(form), "--strict")
        assert (status, err) == (0, ""), form
        found = " ".join(
            f"{word if each[0] != '*' else '*'}:{phones}"
            for (word, phones), each in zip(parsed(form, lines), wanted.split(" "), strict=True)
        )
        assert found == wanted, form


def test_no_listed_word_is_found_within_another_one(run, listed):
    own = listed("bo-ki q", "-ben q")
    _, lines, _ = run("bo-ki's xbo-ki a-ben bob-kid", "--words-from-text", *of_form("tsv"), *own)
    words = [word for word, _ in parsed("tsv", lines)]
    assert words == ["bo", "ki's", "xbo", "ki", "a", "ben", "bob", "kid"]


def test_signs_within_words_of_any_script_join_letters(run):
    text = "paral‧lel don`t don´t می\u200cخواهم a·b · ma\u00adgyar e.g."
    words = ["paral‧lel", "don`t", "don´t", "می\u200cخواهم", "a·b", "magyar", "e", "g"]
    assert voices.spoken_words(text) == words
    _, lines, err = run("don`t don´t don't", "--words-from-text", "--format", "tsv")
    assert len({line.split("\t")[1] for line in lines}) == 1
    assert (len(lines), err) == (3, "")


HYPHENS = "szent-ben Szent-Ben -ben ben- szent--ben 'szent-ben' #szent #szent-ben ben"


@pytest.mark.parametrize("kind", ["matcha", "kokoro"])
@pytest.mark.parametrize("phone", ["b", "bb"])
def test_no_word_with_a_hyphen_or_a_hash_is_lost(kind, phone, run, listed, tmp_path, capfd):
    own = listed("szent a", f"ben {phone}", "#szent a a")
    status, lines, err = run(HYPHENS, "--words-from-text", *of_form(kind), *own, "--strict")
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


def test_a_listed_word_with_a_hyphen_is_what_kokoro_reads(run, listed, tmp_path, capfd):
    own = listed("szent a", "ben b", "szent-ben c")
    _, lines, _ = run("Szent-Ben ben-szent", "--words-from-text", *of_form("kokoro"), *own)
    voice = Voice(tmp_path, ["_", "", *PUNCTUATION, *"abc"], "\n".join(lines), capfd, "kokoro")
    for text, wanted in (("szent-ben", ["c"]), ("ben-szent", ["b", "a"])):
        assert [x for x in voice.read(text)[0] if x in {*"abc"}] == wanted


def test_a_part_that_is_missing_makes_the_whole_missing(run, listed, tmp_path):
    file = tmp_path / "missing.tsv"
    words = "--words-from-text", *of_form("matcha"), "--write-skipped", file, "--strict"
    status, lines, _ = run("1937-ben", *words, *listed("ben b"))
    assert (status, lines) == (1, ["ben b"])
    assert {word for word, _ in parsed("tsv", file.read_text().splitlines())} == {
        *("1937", "1937-ben")
    }


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


def test_capitals_of_turkish_are_small_as_its_alphabet_has_them(
    turkish, run, listed, tmp_path, capfd
):
    own = listed("ışık p0", "ısparta p1", "istanbul p2", "Iğdır p3")
    words = *own, "--local", turkish, "--strict"
    text = "Isparta Işık IŞIK İstanbul I\u0307STANBUL IĞDIR"
    lines = ["ısparta\tp1", "ışık\tp0", "istanbul\tp2", "ığdır\tp3"]
    assert run(text, *of_form("mfa"), "--words-from-text", *words) == (0, lines, "")
    found = parsed("tsv", run(text.replace(" ", "\n"), *of_form("tsv"), *words)[1])
    each = ["p1", "p0", "p0", "p2", "p2", "p3"]
    assert [phones for _, phones in found] == each
    _, lines, _ = run(text, *of_form("kokoro"), "--words-from-text", *words)
    tokens = ["_", "", *PUNCTUATION, "p0", "p1", "p2", "p3"]
    voice = Voice(tmp_path, tokens, "\n".join(lines), capfd, "kokoro")
    for word, phone in zip(text.split(), each, strict=True):
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


def test_an_apostrophe_is_the_one_that_training_saw(run):
    words = "o'clock", "o’clock", "oʼclock"
    _, lines, err = run("\n".join(words), "--format", "tsv")
    assert [line.split("\t")[0] for line in lines] == [*words]
    assert len({line.split("\t")[1] for line in lines}) == 1
    assert err == ""
