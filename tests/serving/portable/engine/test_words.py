"""Pieces joined to the words of an alignment by the page's script, in Node."""

import itertools

import numpy as np

from tests.serving.javascript import call, needs_node

pytestmark = needs_node
JOINED = [
    (["▁She", "▁is", "▁eat", "ing", "▁app", "les", "."], "She|is|eating|apples|."),
    (["▁", "Z", "oé", "▁l", "'", "aime"], "Zoé|l|'|aime"),
    (["▁她", "正在", "吃", "。"], "她|正在|吃|。"),
    (["▁한국", "어"], "한국어"),
    (["▁مر", "حبا"], "مرحبا"),
    (["K", "AE", "T"], "K|AE|T"),  # phones: no piece is marked
    (["▁", "▁a"], "a"),
    (["▁The", "<unk>", "▁and", "<unk>", "s"], "The|<unk>|and|<unk>|s"),
    ([], ""),
]


def test_pieces_are_joined_to_words():
    given = [{"source": tokens, "target": [], "weights": []} for tokens, _ in JOINED]
    joined = call("static/pieces.js", "join", [[each] for each in given])
    groups = call("static/pieces.js", "groups", [[tokens] for tokens, _ in JOINED])
    for (tokens, words), answer, group in zip(JOINED, joined, groups, strict=True):
        assert "|".join(answer["source"]) == words
        assert list(itertools.chain(*group)) == list(range(len(tokens)))


def test_weights_are_summed_over_what_is_looked_at_and_averaged_over_who_looks():
    weights = np.random.default_rng(3).dirichlet(np.ones(5), size=3)
    given = {"source": ["▁ab", "c", "▁d", "ef", "."], "target": ["▁x", "y", "▁z"]}
    (answer,) = call("static/pieces.js", "join", [[{**given, "weights": weights.tolist()}]])
    assert (answer["source"], answer["target"]) == (["abc", "def", "."], ["xy", "z"])
    columns = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]])
    rows = np.array([[0.5, 0.5, 0], [0, 0, 1]])
    np.testing.assert_allclose(answer["weights"], rows @ weights @ columns.T, atol=1e-12)
