import math

import numpy as np
import pytest

from training.data.pair_files import Split
from training.score import links
from training.score.links import WordWeights
from training.score.reading import METHODS, Reading


def one_hot(columns, width):
    return np.eye(width, dtype="float32")[columns]


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (0, {(2, 0), (0, 1), (1, 2)}),
        (1, {(0, 0), (1, 1), (3, 2)}),
        (-1, {(2, 0), (2, 1), (0, 2)}),
        (7, {(3, 0), (3, 1), (3, 2)}),
    ],
)
def test_a_shift_takes_the_weights_of_a_later_step_and_stops_at_the_ends(shift, expected):
    sentence = WordWeights(one_hot([2, 0, 1, 3], 5), [0, 1, 2, 3, 4], [0, 1, 2])
    for method in METHODS:
        assert links.read([sentence], Reading(method, shift=shift)) == [expected]


def test_symmetrised_links_are_those_of_both_directions(rng):
    weights = rng.dirichlet(np.ones(7), size=5)
    words = list(range(7)), list(range(5))
    forwards = {(int(weights[t].argmax()), t) for t in range(5)}
    backwards = {(s, int(weights[:, s].argmax())) for s in range(7)}
    assert forwards - backwards
    assert backwards - forwards
    assert links.from_weights(weights, *words, symmetrize="intersection") == (forwards & backwards)
    assert links.from_weights(weights, *words, symmetrize="union") == forwards | backwards
    shares = weights / weights.sum(axis=0)
    expected = {(s, t) for t in range(5) for s in range(7) if shares[t, s] >= 0.3}
    expected |= {(s, t) for t in range(5) for s in range(7) if weights[t, s] >= 0.3}
    settings = {"method": "threshold", "threshold": 0.3, "symmetrize": "union"}
    assert links.from_weights(weights, *words, **settings) == expected
    with pytest.raises(ValueError, match="symmetrize must be one of none"):
        links.from_weights(weights, *words, symmetrize="both")


def test_grow_diag_adds_neighbours_of_words_without_a_link_only():
    # Target word 1 looks at word 1, which looks back; 0 and 2 look there too, 3 at word 0.
    weights = np.array(
        [
            [0.1, 0.7, 0.2, 0.0],
            [0.0, 0.9, 0.1, 0.0],
            [0.0, 0.6, 0.4, 0.0],
            [0.8, 0.1, 0.1, 0.0],
        ]
    )
    words = [0, 1, 2, 3], [0, 1, 2, 3]
    # Forwards (1,0) (1,1) (1,2) (0,3); backwards (0,3) (1,1) (2,2) and (3,0) of a word unseen.
    found = links.from_weights(weights, *words, symmetrize="intersection")
    assert found == {(1, 1), (0, 3)}
    found = links.from_weights(weights, *words, symmetrize="grow-diag")
    assert found == {(1, 1), (0, 3), (1, 0), (1, 2), (2, 2)}  # (3, 0) has no neighbour


def test_the_diagonal_runs_from_the_first_words_to_the_last():
    split = Split(["a b c", "a", ""], [["x y z u v"], ["x y"], ["x"]])
    split = Split(
        split.sources,
        split.references,
        [text.split() for text in split.sources],
        [texts[0].split() for texts in split.references],
    )
    first, second, third = links.diagonal(split)
    assert {(0, 0), (1, 2), (2, 4)} <= first
    assert len(first) == 5
    assert second == {(0, 0), (0, 1)}
    assert third == set()


def test_short_pairs_are_short_on_both_sides():
    split = Split(["a b", "a b c", "a", "a b"], [["x"], ["x"], ["x y z"], ["x y"]])
    assert links.at_most(split, 2).sources == ["a b", "a b"]
    words = {"source_words": [["a"]] * 4, "target_words": [["x"], ["x"] * 3, ["x"], ["x"]]}
    by_words = Split(split.sources, split.references, **words)
    assert links.at_most(by_words, 2).sources == ["a b", "a", "a b"]


def test_a_prior_draws_links_to_the_diagonal(rng):
    weights = rng.dirichlet(np.ones(11), size=7).astype("float32")
    drawn = links.near_the_diagonal(weights, 5.0)
    for t in range(7):
        prior = [math.exp(-5.0 * abs((t + 0.5) / 7 - (s + 0.5) / 11)) for s in range(11)]
        total = sum(weights[t, s] * prior[s] for s in range(11))
        expected = [weights[t, s] * prior[s] / total for s in range(11)]
        np.testing.assert_allclose(drawn[t], expected, rtol=1e-5)
    twice = WordWeights(np.array([[0.4, 0.1, 0.5], [0.2, 0.5, 0.3], [0, 0, 1]]), [0, 1, 2], [0, 1])
    assert links.read([twice], Reading("argmax")) == [{(2, 0), (1, 1)}]
    assert links.read([twice], Reading("argmax", tension=2.0)) == [{(0, 0), (1, 1)}]


def test_what_is_said_of_a_reading_names_all_that_was_chosen():
    said = Reading("threshold", 0.3, -1, "grow-diag").describe()
    for part in ("force-decoded", "i-1", ">= 0.3", "grow-diag"):
        assert part in said
    assert "exp(" not in said
    assert "exp(-4 |i/T - j/S|)" in Reading(tension=4.0).describe()
    said = Reading("argmax").describe()
    assert "largest weight" in said
    assert "not symmetrised" in said
