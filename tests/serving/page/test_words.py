import itertools

import numpy as np
import pytest

from serving.page.words import groups, join


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["▁She", "▁is", "▁eat", "ing", "▁app", "les", "."], "She|is|eating|apples|."),
        (["▁", "Z", "oé", "▁l", "'", "aime"], "Zoé|l|'|aime"),
        (["▁她", "正在", "吃", "。"], "她|正在|吃|。"),
        (["▁한국", "어"], "한국어"),
        (["▁مر", "حبا"], "مرحبا"),
        (["K", "AE", "T"], "K|AE|T"),  # phones: no piece is marked
        (["▁", "▁a"], "a"),
        (["▁The", "<unk>", "▁and", "<unk>", "s"], "The|<unk>|and|<unk>|s"),
        ([], ""),
    ],
)
def test_pieces_are_joined_to_words(tokens, words):
    joined, _, _ = join(tokens, [], [])
    assert "|".join(joined) == words
    assert list(itertools.chain(*groups(tokens))) == list(range(len(tokens)))


def test_weights_are_summed_over_what_is_looked_at_and_averaged_over_who_looks(rng):
    weights = rng.dirichlet(np.ones(5), size=3)
    source, target, found = join(["▁ab", "c", "▁d", "ef", "."], ["▁x", "y", "▁z"], weights.tolist())
    assert (source, target) == (["abc", "def", "."], ["xy", "z"])
    columns = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]])
    rows = np.array([[0.5, 0.5, 0], [0, 0, 1]])
    np.testing.assert_allclose(found, rows @ weights @ columns.T, atol=1e-12)
    np.testing.assert_allclose(np.sum(found, axis=1), 1)
