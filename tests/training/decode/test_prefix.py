"""A search with a prefix against all token sequences whose text begins with it."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_attention import beam_search
from training.data.ids import END_ID, START_ID
from training.data.spelling import Spelling
from training.data.tokenizers import VocabularyTokenizer, train_tokenizer
from training.decode.prefix import Covered, NextWord, Prefix

LENGTH = 4
WORDS = ["a", "ab", "abab", "b", "▁a", "▁ab", "▁b", "▁ba"]


def subwords():
    lines = ["ab ba", "abab b", "ba a ab"] * 7
    return train_tokenizer("sentencepiece", lines, 11, normalization="identity")


TOKENIZERS = {
    "sentencepiece": subwords,
    "words": lambda: VocabularyTokenizer("words", WORDS),
    "characters": lambda: VocabularyTokenizer("characters", ["a", "b", " "]),
    "letters": lambda: VocabularyTokenizer("letters", ["a", "b", " ", "e", "\u0301"]),
    "symbols": lambda: VocabularyTokenizer("symbols", ["a", "ab", "b"]),
}
PREFIXES = ["", "a", "ab", "ba", "abab", "ab ", "ab b", " a", "b  a", "ba a", "e"]


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def bigrams(rng, tokenizer):
    """Log-probabilities of a bigram model; special tokens, which no text shows, are not said."""
    logits = rng.normal(size=(tokenizer.vocab_size,) * 2)
    logits[:, :END_ID] = -np.inf
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype("float32")


@pytest.fixture
def table(rng, tokenizer):
    return bigrams(rng, tokenizer)


@pytest.fixture
def everything(tokenizer):
    """All hypotheses and their texts."""
    tokens = range(END_ID + 1, tokenizer.vocab_size)
    ids = [x for n in range(LENGTH) for x in itertools.product(tokens, repeat=n)]
    dense = np.array([[*x, *[END_ID] * (LENGTH - len(x))] for x in ids], "int32")
    texts = tokenizer.detokenize(tf.constant(dense)).numpy()
    return [((*x, END_ID), text.decode()) for x, text in zip(ids, texts, strict=True)]


def search(table, prefixes, tokenizer, make=Prefix, whole=False, **options):
    spelling = Spelling(tokenizer)
    normal = spelling.normalize(tf.constant(prefixes))
    spelled, possible = spelling.spell(normal, tf.fill([len(prefixes)], whole))
    step = lambda tokens, state, memory: (tf.gather(table, tokens), None, state)  # noqa: E731
    step, state, memory = make(spelling, spelled).forced(step, (), ())
    found = beam_search(
        step,
        state,
        memory=memory,
        batch_size=len(prefixes),
        start_id=START_ID,
        end_id=END_ID,
        length_penalty=0.0,
        return_attention_weights=False,
        **{"max_length": LENGTH, "beam_width": 400, **options},
    )
    return found, possible.numpy()


def probability(table, ids):
    return sum(table[a, b] for a, b in itertools.pairwise((START_ID, *ids)))


def normal(kind, prefix):
    return (
        prefix
        if kind in ("characters", "letters")
        else " ".join(prefix.split()) + " " * prefix.endswith(" ")
    )


def begins(kind, text, prefix):
    prefix = normal(kind, prefix)
    return text.startswith(prefix) or f"{text} " == prefix


def test_the_best_of_all_hypotheses_is_found(tokenizer, table, everything):
    found, possible = search(table, PREFIXES, tokenizer)
    some = 0
    for row, prefix in enumerate(PREFIXES):
        fitting = [x for x, text in everything if begins(tokenizer.kind, text, prefix)]
        if not fitting:
            continue  # too long for so few tokens
        best = max(fitting, key=lambda ids: probability(table, ids))
        some += 1
        ids = tuple(found.ids[row, 0].numpy())[: found.lengths[row, 0]]
        assert possible[row]
        if ids[-1] == END_ID:
            np.testing.assert_allclose(found.scores[row, 0], probability(table, best), atol=1e-4)
            assert ids == best
        else:  # it was cut
            assert probability(table, ids) > probability(table, best)
    assert some > 5


@pytest.mark.parametrize("prefix", ["c", "ac", "ab c", "é", "ab\nb", "\ufffd"])
def test_no_token_sequence_spells_a_strange_character(tokenizer, table, prefix):
    _, possible = search(table, [prefix, "ab"], tokenizer, beam_width=3)
    spelled = {"ab\nb": ("words", "symbols"), "é": ("letters",)}  # spaces, and a decomposition
    assert possible.tolist() == [tokenizer.kind in spelled.get(prefix, ()), True]


def test_a_way_that_leads_nowhere_is_not_taken(rng):
    """After "ab" there is no "c", however probable "ab" is."""
    tokenizer = VocabularyTokenizer("characters", ["a", "ab", "bc"])
    table = np.full((7, 7), -9.0, "float32")
    table[:, 5] = 0.0
    found, possible = search(table, ["abc"], tokenizer, beam_width=1)
    assert possible.all()
    assert found.ids[0, 0].numpy()[:2].tolist() == [4, 6]


def test_an_empty_prefix_changes_nothing(tokenizer, table):
    found, _ = search(
        table,
        ["", " "] if tokenizer.kind in ("words", "symbols", "sentencepiece") else [""],
        tokenizer,
    )
    plain = beam_search(
        lambda tokens, state: (tf.gather(table, tokens), None, state),
        (),
        batch_size=1,
        start_id=START_ID,
        end_id=END_ID,
        length_penalty=0.0,
        return_attention_weights=False,
        max_length=LENGTH,
        beam_width=400,
    )
    for row in range(len(found.ids)):
        np.testing.assert_array_equal(found.ids[row], plain.ids[0])
        np.testing.assert_array_equal(found.scores[row], plain.scores[0])


def test_rows_do_not_depend_on_their_batch(tokenizer, table):
    together, _ = search(table, PREFIXES, tokenizer, beam_width=5)
    for row, prefix in enumerate(PREFIXES):
        alone, _ = search(table, [prefix], tokenizer, beam_width=5)
        np.testing.assert_allclose(together.scores[row], alone.scores[0], atol=1e-5)


def test_a_prefix_is_as_probable_as_all_that_begin_with_it(tokenizer, rng):
    """Of hypotheses that end within few tokens, which the model makes nearly sure."""
    size = tokenizer.vocab_size
    probabilities = rng.random((size, size))
    probabilities[:, :END_ID] = 0
    probabilities /= probabilities.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        table = np.log(probabilities).astype("float32")
    prefixes = ["", "a", "ab", "ab b"]
    found, _ = search(table, prefixes, tokenizer, make=Covered, max_length=9, num_results=400)
    covered = np.exp(found.scores.numpy()).sum(1)
    surfaces = Spelling(tokenizer).surfaces.numpy()
    for row, prefix in enumerate(prefixes):
        # All shortest token sequences whose text has the prefix in it.
        expected, open_ = 0.0, [((START_ID,), 1.0)]
        for _ in range(7):
            grown = []
            for ids, mass in open_:
                text = b"".join(surfaces[x] for x in ids).decode()
                text = text if tokenizer.kind in ("characters", "letters") else text.lstrip(" ")
                if text.startswith(prefix) and len(text) >= len(prefix):
                    expected += mass
                elif prefix.startswith(text):
                    more = enumerate(probabilities[ids[-1]])
                    grown += [((*ids, x), mass * p) for x, p in more if p and x != END_ID]
            open_ = grown
        np.testing.assert_allclose(covered[row], expected, rtol=1e-3)


def test_the_next_words_are_the_most_probable_ones(rng):
    """Words cut in several ways, each summed by the search over what follows it."""
    tokenizer = VocabularyTokenizer("words", WORDS)
    size = tokenizer.vocab_size
    probabilities = rng.random((size, size))
    probabilities[:, :END_ID] = 0
    probabilities /= probabilities.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        table = np.log(probabilities).astype("float32")

    def words(*arguments):
        return NextWord(*arguments, tf.constant([False]))

    found, _ = search(table, ["ab "], tokenizer, make=words, max_length=5, num_results=60)
    begins = [
        x
        for x in range(size)
        if tokenizer.tokens(tf.constant([x])).numpy()[0][:3] == b"\xe2\x96\x81"
    ]
    for ids, length, score in zip(
        found.ids[0].numpy(), found.lengths[0].numpy(), found.scores[0].numpy(), strict=True
    ):
        ids = ids[:length].tolist()
        if not ids or ids[-1] != END_ID:
            continue
        (said,) = tokenizer.detokenize(tf.constant([ids])).numpy()
        assert said.startswith(b"ab ")
        assert said.count(b" ") == 1
        inner = np.prod([probabilities[a, b] for a, b in itertools.pairwise((START_ID, *ids[:-1]))])
        over = probabilities[ids[-2], [END_ID, *begins]].sum()
        np.testing.assert_allclose(np.exp(score), inner * over, rtol=1e-3)
    assert found.ids[0, 0].numpy()[found.lengths[0, 0] - 1] == END_ID
