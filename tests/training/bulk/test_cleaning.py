"""Pairs that are left out of a corpus, held to lists written by hand and to Python's own sets."""

import numpy as np
import pytest

from training.bulk.cleaning import Filters, clean_block
from training.bulk.duplicates import mark_duplicates
from training.bulk.lines import Block
from training.command.errors import UserError

GO, YES, FOUR = ("Go.", "Allez-vous"), ("Yes", "Да"), ("四", "四 4")


@pytest.mark.parametrize(
    ("filters", "left_out"),
    [
        (Filters(), {}),
        (Filters(max_characters=10), {}),
        (Filters(max_characters=9), {("He sleeps.", "Il dort."): "too long", GO: "too long"}),
        (Filters(max_ratio=3), {GO: "ratio"}),
        (Filters(no_identical=True), {("OK", "OK"): "identical sides"}),
        (Filters(target_script="latin"), dict.fromkeys([YES, FOUR], "wrong script")),
        (
            Filters(source_script="CJK", target_script="LATIN+CJK"),
            dict.fromkeys([("He sleeps.", "Il dort."), ("OK", "OK"), GO, YES], "wrong script"),
        ),
    ],
    ids=lambda value: str(value.asked()) if isinstance(value, Filters) else "",
)
def test_filters(filters, left_out):
    pairs = [("He sleeps.", "Il dort."), ("OK", "OK"), GO, YES, FOUR]
    pairs += [("12", "1 2")]  # numbers are of no script
    found = {pair: filters.reason(*pair) for pair in pairs}
    assert {pair: reason for pair, reason in found.items() if reason} == left_out


def test_a_script_that_no_letter_has():
    with pytest.raises(UserError, match=r"Received: klingon$"):
        Filters(source_script="LATIN+klingon")


@pytest.mark.parametrize("together", [7, 100, 10_000])
def test_duplicates_are_those_that_a_set_has_seen(tmp_path, rng, together):
    counts, expected, seen = [], [], set()
    for number in range(5):
        pairs = [(f"word {n}", f"mot {n % 3}") for n in rng.integers(0, 150, 53 * (number != 2))]
        text = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
        block = Block(number, 1, (text,))
        cleaned = clean_block(block, Filters(no_duplicates=True), (0.0, 0.0), tmp_path)
        assert cleaned.pairs == len(pairs)
        counts.append(cleaned.pairs)
        for pair in pairs:
            expected.append(pair in seen)
            seen.add(pair)
    assert 30 < sum(expected) < 180
    np.testing.assert_array_equal(mark_duplicates(tmp_path, counts, together), expected)
