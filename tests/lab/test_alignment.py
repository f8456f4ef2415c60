"""Links of words: ALIBI's gold, how weights are read, and the study of them."""

import math

import numpy as np
import pytest

from lab import readings
from lab.alibi import TALES, load
from lab.readings import Reading
from tests.training.data.files import write
from training.data.read._specs import CorpusError
from training.score._links import WordWeights


def test_alibi_links_are_turned_round_and_the_texts_joined(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_DATA", str(tmp_path))
    folder = tmp_path / "align-alibi-en-fr"
    for english, french in TALES:
        write(folder / f"{english}_sents.txt", f"0\t{english}\n")
        write(folder / f"{french}_sents.txt", f"0\t{french}\n")
        write(folder / f"ali_w2w_{french}_{english}.txt", "0\t0-0 \n")
    english, french = '" Come , " he said ; don \'t go .', "« Viens » , dit -il : l' eau !"
    write(folder / "TheInn_sents.txt", f"0\t{english}\n1\tNo .\n")
    write(folder / "LAuberge_sents.txt", f"0\t{french}\n1\tNon .\n")
    links = write(folder / "ali_w2w_LAuberge_TheInn.txt", "0\t1-1 4p5 4p4 \n1\t\n")
    split = load()
    assert len(split.sources) == 6
    at = split.sources.index('"Come," he said; don\'t go.')
    assert split.references[at] == ["« Viens », dit-il : l'eau !"]
    assert split.source_words[at] == english.split()
    assert split.target_words[at] == french.split()
    assert split.sure[at] == {(1, 1)}
    assert split.possible[at] == {(1, 1), (5, 4), (4, 4)}
    assert split.sure[at + 1] == split.possible[at + 1] == frozenset()
    links.write_text("0\t1-1\n")
    with pytest.raises(CorpusError, match="the same sentence numbers"):
        load()


def linked(weights, *settings):
    """The links of some weights whose tokens are words; the end is said without looking."""
    target, source = weights.shape
    weights = np.concatenate([weights, np.zeros((1, source))])
    return readings.read(WordWeights(weights, range(source), range(target)), Reading(*settings))


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
    weights = np.eye(5, dtype="float32")[[2, 0, 1, 3]]
    sentence = WordWeights(weights, [0, 1, 2, 3, 4], [0, 1, 2])
    for method in ("argmax", "threshold"):
        assert readings.read(sentence, Reading(method, shift=shift)) == expected


def test_symmetrised_links_are_those_of_both_directions(rng):
    weights = rng.dirichlet(np.ones(7), size=5)
    forwards = {(int(weights[t].argmax()), t) for t in range(5)}
    backwards = {(s, int(weights[:, s].argmax())) for s in range(7)}
    assert forwards - backwards
    assert backwards - forwards
    assert linked(weights, "argmax", 0.0, 0, "intersection") == forwards & backwards
    assert linked(weights, "argmax", 0.0, 0, "union") == forwards | backwards
    shares = weights / weights.sum(axis=0)
    expected = {(s, t) for t in range(5) for s in range(7) if shares[t, s] >= 0.3}
    expected |= {(s, t) for t in range(5) for s in range(7) if weights[t, s] >= 0.3}
    assert linked(weights, "threshold", 0.3, 0, "union") == expected


def test_grow_diag_adds_neighbours_of_words_without_a_link_only():
    # Target word 1 looks at word 1, which looks back; 0 and 2 look there too, 3 at word 0.
    weights = np.array(
        [[0.1, 0.7, 0.2, 0.0], [0.0, 0.9, 0.1, 0.0], [0.0, 0.6, 0.4, 0.0], [0.8, 0.1, 0.1, 0.0]]
    )
    # Forwards (1,0) (1,1) (1,2) (0,3); backwards (0,3) (1,1) (2,2) and (3,0) of a word unseen.
    assert linked(weights, "argmax", 0.0, 0, "intersection") == {(1, 1), (0, 3)}
    found = linked(weights, "argmax", 0.0, 0, "grow-diag")
    assert found == {(1, 1), (0, 3), (1, 0), (1, 2), (2, 2)}  # (3, 0) has no neighbour


def test_a_prior_draws_links_to_the_diagonal(rng):
    weights = rng.dirichlet(np.ones(11), size=7).astype("float32")
    drawn = readings.near_the_diagonal(weights, 5.0)
    for t in range(7):
        prior = [math.exp(-5.0 * abs((t + 0.5) / 7 - (s + 0.5) / 11)) for s in range(11)]
        total = sum(weights[t, s] * prior[s] for s in range(11))
        expected = [weights[t, s] * prior[s] / total for s in range(11)]
        np.testing.assert_allclose(drawn[t], expected, rtol=1e-5)
    twice = WordWeights(np.array([[0.4, 0.1, 0.5], [0.2, 0.5, 0.3], [0, 0, 1]]), [0, 1, 2], [0, 1])
    assert readings.read(twice, Reading("argmax")) == {(2, 0), (1, 1)}
    assert readings.read(twice, Reading("argmax", tension=2.0)) == {(0, 0), (1, 1)}
