"""Batches, held to loops over the pairs that they are made of."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from tests.training.data.files import train_tokenizer
from training.data.batches._batches import Batches, source_batches
from training.data.batches._plan import Batching
from training.data.batches._shapes import choose_widths
from training.data.tokens._token_ids import tokenize
from training.data.tokens.store import END_ID, PAD_ID, START_ID

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PLANS = {
    "": {},
    "few shapes": {"batch_shapes": 4},
    "joined": {"concat_pairs": 0.4, "batch_size": 17},
    "joined, few shapes": {"concat_pairs": 0.4, "batch_size": 16, "batch_shapes": 3},
    "tokens": {"batch_tokens": 240},
    "tokens, few shapes": {"batch_tokens": 240, "batch_shapes": 4},
}


@pytest.fixture(scope="module")
def tokenizer():
    made = train_tokenizer("symbols", [" ".join(LETTERS)], 40)
    assert made.tokenize([" ".join(LETTERS)]).to_list() == [list(range(END_ID + 1, END_ID + 27))]
    return made


@pytest.fixture(scope="module")
def pairs():
    """Random sentences with lengths like real ones, and translations a little longer."""
    rng = random.Random(3)
    sources, targets = [], []
    for _ in range(2003):
        length = min(31, max(1, round(rng.lognormvariate(2.0, 0.4))))
        sources.append(" ".join(rng.choices(LETTERS, k=length)))
        targets.append(" ".join(rng.choices(LETTERS, k=max(1, length + rng.randint(-2, 3)))))
    return sources, targets


def build(pairs, tokenizer, *, training=True, **options):
    defaults = {"batch_size": 7, "max_source_length": 40, "max_target_length": 40, "seed": 11}
    ids = [tokenize(texts, tokenizer) for texts in pairs]
    return Batches(Batching(**{**defaults, **options}), *ids, training=training)


def read_pairs(batches):
    """(source, target) texts of batches, read from the inputs and the labels."""

    def read(row):
        ids = itertools.takewhile(lambda i: i not in (PAD_ID, END_ID), row)
        return " ".join(LETTERS[i - END_ID - 1] for i in ids)

    rows = (zip(inputs["source"], labels, strict=True) for inputs, labels in batches)
    return [(read(source), read(target)) for batch in rows for source, target in batch]


def shapes(batches):
    return {(inputs["source"].shape[1], labels.shape[1]) for inputs, labels in batches}


def assert_same(batches, others):
    for (inputs, labels), (other_inputs, other_labels) in zip(batches, others, strict=True):
        for name in ("source", "target"):
            np.testing.assert_array_equal(inputs[name], other_inputs[name])
        np.testing.assert_array_equal(labels, other_labels)


def test_target_begins_with_start_and_labels_end_with_end(tokenizer):
    a, b, c = range(END_ID + 1, END_ID + 4)
    made = build((["a b c", "c"], ["b", "c a"]), tokenizer, training=False)
    for batches in (made.epoch(), made.dataset().as_numpy_iterator()):
        ((inputs, labels),) = batches
        np.testing.assert_array_equal(inputs["source"], [[a, b, c], [c, PAD_ID, PAD_ID]])
        np.testing.assert_array_equal(inputs["target"], [[START_ID, b, PAD_ID], [START_ID, c, a]])
        np.testing.assert_array_equal(labels, [[b, END_ID, PAD_ID], [c, a, END_ID]])
        assert {array.dtype for array in (*inputs.values(), labels)} == {np.dtype("int32")}


@pytest.mark.parametrize("name", PLANS)
def test_an_epoch_depends_on_seed_and_number(pairs, tokenizer, name):
    made = build(pairs, tokenizer, **PLANS[name])
    every = list(made.epoch(3))
    assert {len(list(made.epoch(number))) for number in range(3)} == {len(every)}
    assert len(every) == made.statistics.steps_per_epoch
    if not name:
        dataset = made.dataset(3)
        assert int(dataset.cardinality()) == len(every)
        assert_same(every, dataset.as_numpy_iterator())
    if "joined" not in name:
        assert set(zip(*pairs, strict=True)) == set(read_pairs(every))  # each pair is there
        assert len(read_pairs(every)) - len(pairs[0]) < len(every[0][1]) * 40
    read = read_pairs(every)
    assert read_pairs(build(pairs, tokenizer, **PLANS[name]).epoch(3)) == read
    assert read_pairs(made.epoch(4)) != read
    assert read_pairs(build(pairs, tokenizer, **PLANS[name], seed=12).epoch(3)) != read


@pytest.mark.parametrize("size", [7, 64])
def test_an_epoch_has_every_pair_once_and_fills_its_last_batch(pairs, tokenizer, size):
    batches = list(build(pairs, tokenizer, batch_size=size).epoch())
    assert {len(labels) for _, labels in batches} == {size}
    assert len(batches) == -(-2003 // size)
    counts = Counter(read_pairs(batches))
    assert counts.keys() == {*zip(*pairs, strict=True)}
    assert counts.total() == len(batches) * size


def test_similar_lengths_share_a_batch_but_in_dev(pairs, tokenizer):
    def filled(training):
        """Shares of source and target positions that are not padding."""
        batches = list(build(pairs, tokenizer, training=training, batch_size=64).epoch())
        sides = [inputs["source"].ravel() for inputs, _ in batches], [y.ravel() for _, y in batches]
        return [np.mean(np.concatenate(side) != PAD_ID) for side in sides]

    dev = build(pairs, tokenizer, training=False)
    batches = list(dev.dataset().as_numpy_iterator())
    assert read_pairs(batches) == list(zip(*pairs, strict=True))  # of dev every pair, in order
    assert len(batches) == dev.statistics.steps_per_epoch == 287
    assert (dev.statistics.pairs, dev.statistics.dropped) == (2003, 0)
    assert max(filled(training=False)) < 0.6
    assert min(filled(training=True)) >= 0.85


def test_batches_have_few_shapes_where_that_is_wanted(pairs, tokenizer):
    made = build(pairs, tokenizer, batch_shapes=4, batch_size=64)
    expected = {(int(source), int(target)) for source, target in made.plan.shapes}
    assert shapes(made.epoch()) == shapes(made.epoch(1)) == expected
    assert len(expected) == 4
    line = made.shapes_line()
    assert line.startswith("Batches have 4 shapes, source × target: ")
    assert 0.1 < float(line.split("; ")[1].partition("%")[0]) / 100 < 0.4
    options = {"training": False, "shapes": made.plan.shapes}
    dev = Batches(made.plan.batching, made.source, made.target, **options)
    assert len(shapes(dev.epoch())) <= 5  # and one for what is longer than in training
    assert read_pairs(dev.epoch()) == list(zip(*pairs, strict=True))
    assert build(pairs, tokenizer).shapes_line() == ""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shapes_have_the_least_padding_of_all(rng, count):
    source = rng.integers(1, 6, 97)
    labels = np.clip(source + rng.integers(-1, 3, 97), 1, 5)

    def padded(shapes):
        """Places of all pairs, each in the first shape that it fits in."""
        pairs = zip(source, labels, strict=True)
        return sum(min(sum(s) for s in shapes if s[0] >= a and s[1] >= b) for a, b in pairs)

    corners = itertools.product(range(1, 6), repeat=2)
    chains = itertools.combinations(corners, count - 1)
    rising = [c for c in chains if all(a[1] <= b[1] for a, b in itertools.pairwise(c))]
    largest = int(source.max()), int(labels.max())
    chosen = choose_widths(source, labels, count)[-1]
    assert len(chosen) <= count
    assert padded(chosen.tolist()) == min(padded([*chain, largest]) for chain in rising)


def test_a_share_of_the_batches_holds_joined_pairs(tokenizer):
    rng = random.Random(5)
    # z ends every sentence and stands nowhere else; a target tells its source.
    sources = [" ".join([*rng.choices(LETTERS[:13], k=rng.randint(1, 9)), "z"]) for _ in range(997)]
    sources = sorted(set(sources))
    targets = [source[::-1].removeprefix("z ") + " m z" for source in sources]
    target_of = dict(zip(sources, targets, strict=True))
    batches = list(build((sources, targets), tokenizer, batch_size=17, concat_pairs=0.4).epoch())
    rows = []
    for batch in batches:
        counts = []
        for source, target in read_pairs([batch]):
            parts = [part.strip() + " z" for part in source.split("z")[:-1]]
            assert target == " ".join(target_of[part] for part in parts)
            counts.append(len(parts))
        rows.append(len(counts))
        group = {17: 1, 8: 2, 4: 4, 2: 8}[len(counts)]
        assert max(counts) <= group  # rows that the lengths cut short have fewer
        assert np.mean(counts) >= 0.4 * group
    joined = sum(count < 17 for count in rows)
    assert joined == pytest.approx(0.4 * len(sources) / 17, abs=3)
    assert {8, 4, 2} <= set(rows)
    assert 20 < max(inputs["source"].shape[1] for inputs, _ in batches) <= 40


def test_on_a_gpu_empty_rows_fill_batches_of_joined_pairs(pairs, tokenizer):
    options = PLANS["joined, few shapes"]
    batches, filled = list(build(pairs, tokenizer, multiple=4, **options).epoch()), set()
    assert {len(labels) for _, labels in batches} == {16}
    for inputs, labels in batches:
        there = labels.any(1)
        filled.add(int(there.sum()))
        for side in ("source", "target"):
            np.testing.assert_array_equal(inputs[side].any(1), there)
    assert filled == {16, 8, 4, 2}
    fewer = list(build(pairs, tokenizer, **options).epoch())
    assert {len(labels) for _, labels in fewer} == filled
    assert len(batches) == len(fewer)


def test_long_and_empty_pairs_are_dropped_in_training_and_cut_in_evaluation(tokenizer):
    pairs = (["a b c d", "", "a b c", "a"], ["a", "b", "a b c", "a b c d"])
    limits = {"max_source_length": 3, "max_target_length": 3, "batch_size": 4}
    made = build(pairs, tokenizer, **limits)
    assert set(read_pairs(made.epoch())) == {("a b c", "a b c")}
    assert (made.statistics.pairs, made.statistics.dropped) == (1, 3)
    assert (made.statistics.source_tokens, made.statistics.target_tokens) == (3, 4)
    made = build(pairs, tokenizer, training=False, **limits)
    batches = list(made.dataset().as_numpy_iterator())
    assert_same(batches, made.epoch())
    assert read_pairs(batches) == [("a b c", "a"), ("", "b"), ("a b c", "a b c"), ("a", "a b c")]
    assert np.count_nonzero(batches[0][1] == END_ID) == 4
    assert (made.statistics.source_tokens, made.statistics.target_tokens) == (7, 12)


def test_few_pairs_are_a_batch_and_unusable_ones_one_clear_line(tokenizer):
    made = build((["a", "b"], ["a", "b"]), tokenizer)  # fewer than a batch
    assert made.statistics.steps_per_epoch == 1
    assert sorted(read_pairs(made.epoch())) == [("a", "a"), ("b", "b")]
    with pytest.raises(ValueError, match=r"as many targets as sources, 2\. Received: 1"):
        build((["a", "b"], ["a"]), tokenizer)
    with pytest.raises(ValueError, match="All 1 pairs are too long or empty"):
        build((["a b"], ["a"]), tokenizer, max_source_length=1)


@pytest.mark.parametrize("tokens", [101, 240, 9])
def test_batches_of_tokens(pairs, tokenizer, tokens):
    """As many tokens as fit are in each, padding counted."""
    batches = list(build(pairs, tokenizer, batch_tokens=tokens).epoch(2))
    sizes = [max(inputs["source"].size, labels.size) for inputs, labels in batches]
    assert all(n <= tokens or len(y) == 1 for n, (_, y) in zip(sizes, batches, strict=True))
    assert tokens < 200 or np.mean(sizes) > 0.75 * tokens


def test_source_batches_of_few_shapes_repeat_the_last_source(tokenizer):
    texts = [" ".join("abcde"[: 1 + i % 5]) for i in range(23)] + ["a b c d e " * 2, "", "c " * 40]
    rows = tokenize(texts, tokenizer)
    batches = list(source_batches(rows, 13, max_source_length=20, few_shapes=True))
    assert [ids.shape for _, ids in batches] == [(13, 16), (13, 20)]
    assert [int(i) for indices, _ in batches for i in dict.fromkeys(indices)][-2:] == [23, 25]
    assert sorted({int(i) for indices, _ in batches for i in indices}) == [*range(24), 25]
    for indices, ids in batches:
        expected = [min(int(rows.lengths[i]), 20) for i in indices]
        assert np.count_nonzero(ids, axis=1).tolist() == expected
