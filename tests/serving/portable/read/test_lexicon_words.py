"""Words of a text or a list as speech software looks them up: none is lost."""

import json
import random
import re
import shutil
import unicodedata

import pytest

from serving.portable.read import _voices as voices
from serving.portable.read._pronouncer import Pronouncer
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
