"""Several pronunciations of a word in lexicons, and words that are spelled out, as numbers are."""

import math
import re
import subprocess
from pathlib import Path

import pytest

from serving.portable.read import LocalTranslator
from serving.portable.read._pronouncer import Pronouncer
from tests.serving.portable.read.conftest import of_form, parsed
from tests.serving.portable.read.voice import PUNCTUATION, Voice


def test_words_with_several_pronunciations_are_named_for_sherpa(run, listed):
    rows = [f"w{letter} {phone}" for letter in "abcdef" for phone in ("p1", "p2")]
    words = "--words-from-text", *listed(*rows, "same p3", "same p3", "once p4"), "--format"
    told = "several pronunciations; sherpa-onnx takes the first"
    assert run("wa same once", *words, "sherpa")[1:] == (
        ["wa p1", "same p3", "once p4"],
        f"Warning: 1 word of your list has {told}: wa\n",
    )
    err = run("wa wb wc wd we wf same", *words, "sherpa")[2]
    assert err == f"Warning: 6 words of your list have {told}: wa, wb, wc, wd, we and 1 more\n"
    assert run("wa", *words, "kaldi") == (0, ["wa p1", "wa p2"], "")  # has all of them


@pytest.mark.parametrize("form", ["mfa", "kaldi"])
def test_several_pronunciations_have_probabilities_to_the_best(run, model, form, tmp_path):
    """Of those that a voice writes alike they add up, and lines are in the order of the sums."""
    ((_, found),) = Pronouncer(model).pronounce(["cat"], 3)
    texts = [" ".join(each.phones) for each in found]
    scores = LocalTranslator(model).score(["cat"] * len(found), texts)
    products = [math.exp(sum(each.log_probs[:16])) for each in scores]  # they are cut: no end
    file = tmp_path / "names.tsv"
    for names in ({}, {phone: "x" for each in found[1:] for phone in each.phones}):
        chances: dict[str, float] = {}
        for each, product in zip(found, products, strict=True):
            phones = " ".join(names.get(phone, phone) for phone in each.phones)
            chances[phones] = chances.get(phones, 0.0) + product
        file.write_text(
            "".join(f"{phone}\t{name}\n" for phone, name in (names or {"-": "-"}).items())
        )
        _, lines, _ = run("cat", "--format", form, "--nbest", "3", "--rename-phones", file)
        best = max(chances.values())
        rows = [re.split(r"[\t ]", line, maxsplit=2)[1:] for line in lines]
        wanted = sorted(chances.items(), key=lambda pair: -pair[1])
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


@pytest.mark.parametrize("form", ["tsv", "kaldi", "mfa", "json", "vits", "kokoro", "matcha"])
def test_numbers_are_read_as_the_words_of_a_table(form, run, model, listed, tmp_path):
    table, skipped = tmp_path / "numbers.tsv", tmp_path / "skipped.tsv"
    rows = "1937\tEzer, kilenc-kilenc cat\n30\tkilenc\nDr\tezer\n7\tezer ñ\n"
    table.write_text(rows, encoding="utf-8")
    (cat,) = (each for _, (each,) in Pronouncer(model).pronounce(["cat"]))
    own = *of_form(form), *listed("ben q1", "ezer q2", "kilenc q3"), "--spell-out", table
    words = "--words-from-text", *own, "--write-skipped", skipped
    status, lines, _ = run("1937-ben, 30 DR 12 7", *words)
    year = " ".join(["q2", "q3", "q3", *cat.phones])
    expected = {"1937": year, "ben": "q1", "30": "q3", "dr": "q2"}
    if form == "matcha":
        expected["1937-ben"] = f"{year} q1"
    assert (status, dict(parsed(form, lines))) == (0, expected)
    missing = dict(parsed("tsv", skipped.read_text(encoding="utf-8").splitlines()))
    assert {"12", "7"} <= {*missing}
    assert parsed(form, run("1937", *own)[1]) == [("1937", year)]
