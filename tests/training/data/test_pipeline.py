import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from training.data import batches
from training.data.batches import Batching, make_pair_batches
from training.data.ids import END_ID, PAD_ID, START_ID
from training.data.tokenizers import train_tokenizer
from training.sources.pipeline import make_dataset, source_batches, tokenize

LETTERS = "abcdefghijklmnopqrstuvwxyz"


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


def build(pairs, tokenizer, start_epoch=0, *, training, **options):
    defaults = {"batch_size": 7, "max_source_length": 40, "max_target_length": 40, "seed": 11}
    ids = [tokenize(texts, tokenizer) for texts in pairs]
    made = make_pair_batches(Batching(**{**defaults, **options}), *ids, training=training)
    return make_dataset(made, start_epoch), made.statistics


def epoch(dataset, statistics, skip=0):
    steps = statistics.steps_per_epoch
    taken = itertools.islice(dataset.as_numpy_iterator(), skip * steps, (skip + 1) * steps)
    return list(taken)


def read_pairs(batches):
    """(source, target) texts of batches, read from the inputs and the labels."""

    def read(row):
        ids = list(itertools.takewhile(lambda i: i not in (PAD_ID, END_ID), row))
        return " ".join(LETTERS[i - END_ID - 1] for i in ids)

    return [
        (read(source), read(target))
        for inputs, labels in batches
        for source, target in zip(inputs["source"], labels, strict=True)
    ]


def test_target_begins_with_start_and_labels_end_with_end(tokenizer):
    ids = {letter: i for i, letter in enumerate(LETTERS, END_ID + 1)}
    dataset, _ = build((["a b c", "c"], ["b", "c a"]), tokenizer, training=False)
    ((inputs, labels),) = dataset.as_numpy_iterator()
    a, b, c = ids["a"], ids["b"], ids["c"]
    np.testing.assert_array_equal(inputs["source"], [[a, b, c], [c, PAD_ID, PAD_ID]])
    np.testing.assert_array_equal(inputs["target"], [[START_ID, b, PAD_ID], [START_ID, c, a]])
    np.testing.assert_array_equal(labels, [[b, END_ID, PAD_ID], [c, a, END_ID]])
    assert {array.dtype for array in (*inputs.values(), labels)} == {np.dtype("int32")}


def test_evaluation_gives_every_pair_once_in_order(pairs, tokenizer):
    dataset, statistics = build(pairs, tokenizer, training=False)
    batches = list(dataset.as_numpy_iterator())
    assert read_pairs(batches) == list(zip(*pairs, strict=True))
    assert len(batches) == statistics.steps_per_epoch == int(dataset.cardinality()) == 287
    assert (statistics.pairs, statistics.dropped) == (2003, 0)


def test_training_epochs_hold_different_orders_of_all_but_a_remainder(pairs, tokenizer):
    dataset, statistics = build(pairs, tokenizer, training=True)
    assert statistics.steps_per_epoch == 2003 // 7
    first, second = (read_pairs(epoch(dataset, statistics, skip)) for skip in (0, 1))
    everything = set(zip(*pairs, strict=True))
    assert len(everything) == 2003
    for seen in (first, second):
        assert len(seen) == len(set(seen)) == 2002
        assert set(seen) <= everything
    assert first != second


def test_the_order_depends_on_seed_and_epoch_alone(pairs, tokenizer):
    def sources(skip=0, **options):
        dataset, statistics = build(pairs, tokenizer, training=True, **options)
        return [inputs["source"].tolist() for inputs, _ in epoch(dataset, statistics, skip)]

    second = sources(skip=1)
    assert sources(skip=1) == second
    assert sources(start_epoch=1) == second
    assert sources(skip=1, seed=12) != second


def test_similar_lengths_share_a_batch(pairs, tokenizer):
    def filled(training):
        """Shares of source and target positions that are not padding."""
        dataset, statistics = build(pairs, tokenizer, training=training, batch_size=64)
        batches = epoch(dataset, statistics)
        source = np.concatenate([inputs["source"].ravel() for inputs, _ in batches])
        target = np.concatenate([labels.ravel() for _, labels in batches])
        return np.mean(source != PAD_ID), np.mean(target != PAD_ID)

    assert max(filled(training=False)) < 0.6
    source, target = filled(training=True)
    assert source >= 0.8
    assert target >= 0.92


def test_a_share_of_the_batches_holds_joined_pairs(tokenizer):
    rng = random.Random(5)
    # z ends every sentence and stands nowhere else; a target tells its source.
    sources = [" ".join([*rng.choices(LETTERS[:13], k=rng.randint(1, 9)), "z"]) for _ in range(997)]
    sources = sorted(set(sources))
    targets = [source[::-1].removeprefix("z ") + " m z" for source in sources]
    target_of = dict(zip(sources, targets, strict=True))
    options = {"training": True, "batch_size": 17, "join": 0.4}
    dataset, statistics = build((sources, targets), tokenizer, **options)
    batches = epoch(dataset, statistics)
    assert len(batches) == len(sources) // 17
    counts = []
    for batch in batches:
        found = []
        for source, target in read_pairs([batch]):
            parts = [part.strip() + " z" for part in source.split("z")[:-1]]
            assert target == " ".join(target_of[part] for part in parts)
            found.append(len(parts))
        counts.append(sum(found))
        assert max(found) <= 8
        if len(found) < 17:  # rows that the lengths cut short have fewer
            assert len(found) in {17 // group for group in range(2, 9)}
    rows = [len(inputs["source"]) for inputs, _ in batches]
    assert sum(count < 17 for count in rows) == round(0.4 * len(batches))
    assert max(counts) <= 17
    longest = max(inputs["source"].shape[1] for inputs, _ in batches)
    assert 20 < longest <= 40
    again, _ = build((sources, targets), tokenizer, **options)
    assert read_pairs(epoch(again, statistics)) == read_pairs(batches)


def test_long_and_empty_pairs_are_dropped_in_training_and_cut_in_evaluation(tokenizer):
    pairs = (["a b c d", "", "a b c", "a"], ["a", "b", "a b c", "a b c d"])
    limits = {"max_source_length": 3, "max_target_length": 3, "batch_size": 4}
    dataset, statistics = build(pairs, tokenizer, training=True, **limits)
    assert set(read_pairs(epoch(dataset, statistics))) == {("a b c", "a b c")}
    assert (statistics.pairs, statistics.dropped) == (1, 3)
    assert (statistics.source_tokens, statistics.target_tokens) == (3, 4)
    dataset, statistics = build(pairs, tokenizer, training=False, **limits)
    batches = list(dataset.as_numpy_iterator())
    assert read_pairs(batches) == [
        ("a b c", "a"),
        ("", "b"),
        ("a b c", "a b c"),
        ("a", "a b c"),
    ]
    assert np.count_nonzero(batches[0][1] == END_ID) == 4
    assert (statistics.source_tokens, statistics.target_tokens) == (7, 12)


def test_widths_are_multiples_of_length_multiple(pairs, tokenizer):
    for training in (False, True):
        dataset, statistics = build(pairs, tokenizer, training=training, length_multiple=5)
        batches = epoch(dataset, statistics)
        for inputs, labels in batches:
            assert inputs["target"].shape == labels.shape
            assert inputs["source"].shape[1] % 5 == labels.shape[1] % 5 == 0
            assert (inputs["source"] != PAD_ID).any(axis=0)[:-4].all()


def test_the_batch_size_never_changes_in_training(pairs, tokenizer):
    dataset, statistics = build(pairs, tokenizer, training=True)
    assert {labels.shape[0] for _, labels in epoch(dataset, statistics)} == {7}
    dataset, statistics = build((["a", "b"], ["a", "b"]), tokenizer, training=True)
    assert statistics.steps_per_epoch == 1
    assert len(read_pairs(epoch(dataset, statistics))) == 2


def test_unusable_pairs_are_one_clear_line(tokenizer):
    with pytest.raises(ValueError, match=r"as many targets as sources, 2\. Received: 1"):
        build((["a", "b"], ["a"]), tokenizer, training=True)
    with pytest.raises(ValueError, match="None of 1 sentence pairs is usable") as error:
        build((["a b"], ["a"]), tokenizer, training=True, max_source_length=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("tokens", "multiple"), [(101, 1), (240, 4), (9, 1)])
def test_batches_of_tokens(pairs, tokenizer, tokens, multiple, monkeypatch):
    """As many tokens as fit are in each, padding counted; epochs have equally many steps."""
    ids = [tokenize(texts, tokenizer) for texts in pairs]
    sizes = {"batch_size": 7, "max_source_length": 40, "max_target_length": 40}
    for window in (10_000, 3):  # one for all of these pairs; many
        monkeypatch.setattr(batches, "_WINDOW", window)
        made, again = (
            make_pair_batches(
                Batching(**sizes, batch_tokens=tokens, length_multiple=multiple, seed=5),
                *ids,
                training=True,
            )
            for _ in range(2)
        )
        seen = []
        for number in (0, 1, 2):
            found = list(made.epoch(number))
            assert len(found) == made.statistics.steps_per_epoch
            held = [max(inputs["source"].size, labels.size) for inputs, labels in found]
            for size, (_, labels) in zip(held, found, strict=True):
                assert size <= tokens or len(labels) == 1
            if tokens > 200:
                assert np.mean(held) > 0.8 * tokens
            seen.append(read_pairs(found))
        assert read_pairs(again.epoch(2)) == seen[2] != seen[1]
        everything = sorted(zip(*pairs, strict=True))
        if window > 3:
            assert sorted(seen[2]) == everything  # each pair once
        else:
            assert len(set(seen[2])) > 0.9 * len(everything)


def test_source_batches_restore_the_order_and_pass_over_empty_texts(tokenizer):
    texts = ["a b c d e", "", "b", "a b c", "c c"]
    batches = list(
        source_batches(tokenize(texts, tokenizer), 2, max_source_length=3)
    )  # without the empty text
    assert [ids.shape for _, ids in batches] == [(2, 2), (2, 3)]
    restored = [""] * len(texts)
    for indices, ids in batches:
        assert ids.dtype == np.int32
        for i, text in zip(indices, tokenizer.detokenize(tf.constant(ids)).numpy(), strict=True):
            restored[i] = text.decode()
    assert restored == ["a b c", "", "b", "a b c", "c c"]
    assert list(source_batches(tokenize([], tokenizer), 2, max_source_length=3)) == []
