import numpy as np

from training.data.pair_files import Split
from training.score import links
from training.score.links import THRESHOLD, WordWeights


def test_links_are_read_of_words_as_in_a_loop(rng):
    weights = rng.dirichlet(np.full(11, 0.2), size=8)  # the last row is that of the end
    source, target = rng.integers(-1, 4, 11), rng.integers(-1, 3, 7)
    expected = set()
    for word in set(target.tolist()) - {-1}:
        for other in set(source.tolist()) - {-1}:
            rows = [t for t in range(7) if target[t] == word]
            columns = [s for s in range(11) if source[s] == other]
            if sum(weights[t, s] for t in rows for s in columns) / len(rows) >= THRESHOLD:
                expected.add((other, word))
    assert 0 < len(expected) < 12
    assert links.read(WordWeights(weights, source, target)) == expected
    assert links.read(WordWeights(weights, [-1] * 11, target)) == set()
    assert links.read(WordWeights(weights[:1], source, [])) == set()


def test_the_diagonal_runs_from_the_first_words_to_the_last():
    sources, targets = ["a b c", "a", ""], ["x y z u v", "x y", "x"]
    words = ([text.split() for text in side] for side in (sources, targets))
    split = Split(sources, [[text] for text in targets], *words)
    first, second, third = links.diagonal(split)
    assert {(0, 0), (1, 2), (2, 4)} <= first
    assert len(first) == 5
    assert second == {(0, 0), (0, 1)}
    assert third == set()
