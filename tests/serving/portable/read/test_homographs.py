"""Several pronunciations of a word in lexicons, and words that are spelled out, as numbers are."""

import json
import math
import re
import subprocess
from pathlib import Path

import pytest

from serving.portable.read import LocalTranslator
from serving.portable.read._pronouncer import Pronouncer
from tests.serving.portable.read.voice import PUNCTUATION, Voice


def test_words_with_several_pronunciations_are_named_for_sherpa(run, tmp_path):
    own = tmp_path / "own.tsv"
    rows = [(f"w{letter}", phone) for letter in "abcdef" for phone in ("p1", "p2")]
    rows += [("same", "p3"), ("same", "p3"), ("once", "p4")]
    own.write_text("".join(f"{word}\t{phone}\n" for word, phone in rows))
    words = "--words-from-text", "--lexicon", own, "--format"
    _, lines, err = run("wa same once", *words, "sherpa")
    told = "several pronunciations; sherpa-onnx takes the first"
    assert (lines, err) == (
        ["wa p1", "same p3", "once p4"],
        f"Warning: 1 word of your list has {told}: wa\n",
    )
    err = run("wa wb wc wd we wf same", *words, "sherpa")[2]
    assert err == f"Warning: 6 words of your list have {told}: wa, wb, wc, wd, we and 1 more\n"
    assert run("wa", *words, "kaldi") == (0, ["wa p1", "wa p2"], "")  # has all of them


@pytest.mark.parametrize(("form", "separator"), [("mfa", "\t"), ("kaldi", " ")])
def test_several_pronunciations_have_probabilities_to_the_best(run, model, form, separator):
    _, lines, _ = run("cat", "--format", form, "--nbest", "2")
    ((_, pair),) = Pronouncer(model).pronounce(["cat"], 2)
    texts = [" ".join(each.phones) for each in pair]
    scores = LocalTranslator(model).score(["cat"] * len(pair), texts)
    products = [math.exp(sum(each.log_probs[:16])) for each in scores]  # they are cut: no end
    wanted = [max(0.01, product / products[0]) for product in products]
    rows = [line.split(separator, 2) for line in lines]
    assert [each for _, each, _ in rows] == [f"{number:.2f}" for number in wanted]
    assert [phones.split() for *_, phones in rows] == [list(each.phones) for each in pair]


@pytest.mark.parametrize(("form", "separator"), [("mfa", "\t"), ("kaldi", " ")])
def test_pronunciations_that_a_voice_writes_alike_are_one_line(
    run, model, form, separator, tmp_path
):
    """Their probabilities add up, and lines are in the order of the sums."""
    ((_, found),) = Pronouncer(model).pronounce(["cat"], 3)
    names = {phone: "x" for each in found[1:] for phone in each.phones}
    chances: dict[str, float] = {}
    for each in found:
        phones = " ".join(names.get(phone, phone) for phone in each.phones)
        chances[phones] = chances.get(phones, 0.0) + math.exp(each.log_prob)
    file = tmp_path / "names.tsv"
    file.write_text("".join(f"{phone}\t{name}\n" for phone, name in names.items()))
    _, lines, _ = run("cat", "--format", form, "--nbest", "3", "--rename-phones", file)
    best = max(chances.values())
    wanted = sorted(chances.items(), key=lambda pair: -pair[1])
    rows = [line.split(separator, 2)[1:] for line in lines]
    assert rows == [[f"{max(0.01, each / best):.2f}", phones] for phones, each in wanted]


LEXICON_PAGE = Path(__file__).parents[4] / "docs" / "serving" / "lexicon.md"


def block_of_page(heading, language):
    """The first block in some language below a heading of the lexicon command's page."""
    page = LEXICON_PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)[1]


@pytest.mark.parametrize("kind", ["kokoro", "vits"])
def test_a_tagger_chooses_between_the_pronunciations_of_a_homograph(kind, run, tmp_path, capfd):
    heading = "Homographs"
    (tmp_path / "homographs.tsv").write_text(block_of_page(heading, "text"), encoding="utf-8")
    (tmp_path / "my.tsv").write_text("i\tp1\nhave\tp2\nit\tp3\n")
    (tmp_path / "text.txt").write_text("I have read it. I read it; I readit.\n")
    script = block_of_page(heading, "bash").partition("python -m")[0]
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True, timeout=60)
    tagged = (tmp_path / "tagged.txt").read_text()
    assert tagged == "I have read2 it. I read it; I readit.\n"
    words = "--words-from-text", "--lexicon", tmp_path / "all.tsv", "--voice", kind
    status, lines, err = run(tagged, "--format", "sherpa", *words)
    assert (status, err) == (0, "")
    tokens = ["_", "", *PUNCTUATION, *"ɹɛdi", "p1", "p2", "p3", *(f"p{n}" for n in range(4, 1000))]
    voice = Voice(tmp_path, tokens, "\n".join(lines), capfd, kind)
    read = voice.read("I have read2 it. I read it.")[0]
    said = [token for token in read if token not in ("", "_", *PUNCTUATION)]
    assert said == ["p1", "p2", "ɹ", "ɛ", "d", "p3", "p1", "ɹ", "i", "d", "p3"]


def test_a_tag_of_letters_and_a_line_below_is_a_part_of_its_word(run, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text("read\tp1\nread_VBD\tp2\n")
    words = "--words-from-text", "--lexicon", own, "--format"
    for form, between in (("tsv", "\t"), ("kaldi", " "), ("mfa", "\t")):
        _, lines, err = run("read_VBD read", *words, form)
        assert (lines, err) == ([f"read_vbd{between}p2", f"read{between}p1"], ""), form
    _, lines, err = run("read_VBD read", *words, "sherpa", "--voice", "kokoro")
    assert (lines, err) == (["read_vbd p2", "read p1"], "")


@pytest.mark.parametrize("form", ["tsv", "kaldi", "mfa", "json", "vits", "kokoro", "matcha"])
def test_numbers_are_read_as_the_words_of_a_table(form, run, model, tmp_path):
    own, table = tmp_path / "own.tsv", tmp_path / "numbers.tsv"
    own.write_text("ben\tq1\nezer\tq2\nkilenc\tq3\n")
    table.write_text(
        "1937\tEzer, kilenc-kilenc cat\n30\tkilenc\nDr\tezer\n7\tezer ñ\n", encoding="utf-8"
    )
    (cat,) = (each for _, (each,) in Pronouncer(model).pronounce(["cat"]))
    sherpa = form in ("vits", "kokoro", "matcha")
    kind = ["--format", "sherpa", "--voice", form] if sherpa else ["--format", form]
    skipped = tmp_path / "skipped.tsv"
    words = "--words-from-text", "--lexicon", own, "--spell-out", table, "--write-skipped", skipped
    status, lines, _ = run("1937-ben, 30 DR 12 7", *kind, *words)
    found = {}
    for line in lines:
        word, phones = re.split(r"[\t ]", line, maxsplit=1) if form != "json" else ("", "")
        row = json.loads(line) if form == "json" else {"word": word, "phones": phones}
        found[row["word"]] = row["phones"]
    year = " ".join(["q2", "q3", "q3", *cat.phones])
    expected = {"1937": year, "ben": "q1", "30": "q3", "dr": "q2"}
    if form == "matcha":
        expected["1937-ben"] = f"{year} q1"
    assert (status, found) == (0, expected)
    missing = dict(line.split("\t") for line in skipped.read_text(encoding="utf-8").splitlines())
    assert {"12", "7"} <= {*missing}
    assert run("1937", *kind, "--lexicon", own, "--spell-out", table)[1] == [
        line for line in lines if line.startswith(("1937 ", "1937\t", '{"word": "1937"'))
    ]
