"""Completions and alternatives in this process beside those of a SavedModel, for all tokenizers."""

import dataclasses
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from keras_attention import beam_search
from serving.client.local import completing as local
from serving.client.local.batches import Batches
from serving.client.local.search import Search
from serving.client.local.spelling import Spelling
from serving.client.local.tokenizers import SentencePiece, Vocabulary
from serving.client.local.words import words_of
from serving.export.completing import Completing
from tests.attack.conftest import within
from tests.training.decode.test_prefix import PREFIXES, TOKENIZERS, bigrams
from training.data.ids import END_ID, START_ID
from training.data.pieces import model_of
from training.data.spelling import INSIDE, inside_characters
from training.data.spelling import Spelling as InGraph
from training.data.tokenizers import character_classes
from training.decode.asked import Search as Asked
from training.decode.search import Encoded
from training.decode.words import words_of as words_in_graph

WIDTH, RESULTS, PENALTY = 5, 3, 0.7
SOURCES = [[7] * (n % 3 + 1) for n in range(len(PREFIXES))]


class Bigrams:
    """A folder whose decoder knows the last token alone."""

    def __init__(self, table):
        self._table = table
        self.manifest = {
            "graphs": {"memory": [], "state": []},
            "settings": {
                "beam_width": WIDTH,
                "num_results": RESULTS,
                "length_penalty": PENALTY,
            },
            "tokenizers": {"target": {"size": len(table)}},
        }

    def run(self, graph, inputs):
        rows = inputs.get("tokens", np.zeros(0, int))
        return {"log_probs": self._table[rows], "weights": np.zeros((len(rows), 1), "float32")}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


@pytest.fixture
def table(rng, tokenizer):
    return bigrams(rng, tokenizer)


@pytest.fixture(scope="module")
def pairs(tokenizer):
    """Sources and prefixes that tokens spell."""
    spelling = InGraph(tokenizer)
    prefixes = spelling.normalize(tf.constant(PREFIXES))
    _, possible = spelling.spell(prefixes, tf.fill([len(PREFIXES)], False))
    rows = np.flatnonzero(possible)
    assert len(rows) > 4
    return [SOURCES[row] for row in rows], [PREFIXES[row] for row in rows]


@pytest.fixture(scope="module")
def target(tokenizer, tmp_path_factory):
    """The tokenizer without TensorFlow."""
    if tokenizer.kind != "sentencepiece":
        return Vocabulary({**tokenizer.state(), "characters": character_classes()})
    path = tmp_path_factory.mktemp("pieces") / "target.model"
    path.write_bytes(model_of(tokenizer.state()))
    return SentencePiece(path)


@pytest.fixture
def ours(table, tokenizer, target):
    spelling = Spelling(target, inside_characters(tokenizer))
    folder = Bigrams(table)
    search = Search(folder.manifest, None, None, None)
    return local.Completing(folder, target, spelling, search, Batches(4, 1))


@pytest.fixture
def served(table, tokenizer):
    """The signatures of a SavedModel."""
    asked = Asked(WIDTH, RESULTS, PENALTY)

    def read(text):
        lengths = tf.strings.length(text)
        ids = tf.cast(tf.sequence_mask(lengths), "int32")
        return ids, lengths == 0, tf.zeros_like(lengths, tf.bool)

    def encode(ids):
        return Encoded(ids, [], [])

    def search(ids, settings=None, *, prefix):
        ids = ids.source if isinstance(ids, Encoded) else ids
        settings = settings or dataclasses.replace(asked, num_results=1)
        step = lambda tokens, state, memory: (tf.gather(table, tokens), None, state)  # noqa: E731
        step, state, memory = prefix.forced(step, (), ())
        return beam_search(
            step,
            state,
            memory=memory,
            batch_size=len(ids),
            start_id=START_ID,
            end_id=END_ID,
            max_length=tf.maximum(2 * tf.reduce_sum(ids, 1) + 10, prefix.spelled.size + 10),
            beam_width=settings.beam_width,
            num_results=settings.num_results,
            length_penalty=settings.length_penalty,
            return_attention_weights=False,
        )

    return Completing(tokenizer, InGraph(tokenizer), asked, read, encode, search)


def tensors(pairs):
    sources, prefixes = pairs
    return tf.constant(["x" * len(source) for source in sources]), tf.constant(prefixes)


def test_the_same_prefixes_can_be_spelled(tokenizer, target):
    mine = Spelling(target, inside_characters(tokenizer))
    spelling = InGraph(tokenizer)
    prefixes = [*PREFIXES, "c", "ac", "ab c", "é", "ab\nb", "\ufffd", "ab  ", "  "]
    prefixes += [f"a{space}b{space}" for space in "\t\v\f\r\x1c\x85\u3000"]
    normal = spelling.normalize(tf.constant(prefixes))
    assert [mine.normalize(x) for x in prefixes] == [x.decode() for x in normal.numpy()]
    for whole in (False, True):
        _, possible = spelling.spell(normal, tf.fill([len(prefixes)], whole))
        found = [mine.spell(mine.normalize(x), whole) is not None for x in prefixes]
        assert found == possible.numpy().tolist()


def shown(spelling, number, place):
    """What a token adds to a text at a place, of which a first space is not shown in front."""
    text = spelling.texts[number]
    hides = not place and spelling.kind in ("sentencepiece", "words", "symbols")
    return text.removeprefix(" ") if hides else text


def test_the_ways_to_spell_a_prefix_are_those_of_the_tokens(tokenizer, target, rng):
    spelling = Spelling(target, inside_characters(tokenizer))
    numbers = range(END_ID + 1, target.size)
    some = 0
    for _ in range(300):
        typed = "".join(rng.choice(list("aab e\u0301"), rng.integers(0, 9)))
        prefix, whole = spelling.normalize(typed), bool(rng.random() < 0.4)
        open_, wanted = {len(prefix)}, []
        for place in reversed(range(len(prefix))):
            rest = prefix[place:]
            said = {x: shown(spelling, x, place) for x in numbers}
            exact = {
                x
                for x, text in said.items()
                if text and rest.startswith(text) and place + len(text) in open_
            }
            beyond = {x for x, text in said.items() if text.startswith(rest) and text != rest}
            partial = set() if whole else beyond
            if rest == " ":
                exact.add(END_ID)
            if exact or partial:
                open_.add(place)
            if not place:
                exact |= {x for x, text in said.items() if not text and 0 in open_}
            wanted.append((exact, partial))
        found = spelling.spell(prefix, whole)
        assert (found is None) == (0 not in open_)
        if found:
            some += bool(prefix)
            ways = zip(map(set, found.exact), map(set, found.partial), strict=True)
            assert list(ways) == wanted[::-1]
    assert some > 15


def test_a_long_prefix_is_spelled_at_once(tokenizer, target):
    spelling = Spelling(target, inside_characters(tokenizer))
    count = 200_000
    with within(10):
        found = spelling.spell(spelling.normalize("ab " * count))
    assert found is not None
    assert found.size == 3 * count
    assert sum(map(bool, found.partial)) <= 3


def test_completions_are_those_of_the_saved_model(ours, served, pairs):
    outputs, found, _ = served.complete(*tensors(pairs))
    for row, (text, best) in enumerate(ours.complete(*pairs, [None] * len(pairs[0]))):
        assert text == outputs["translation"][row].numpy().decode()
        ids = found.ids[row, 0].numpy()
        assert best.ids.tolist() == ids[ids > 0].tolist()
        log_probs = found.log_probs[row, 0].numpy()[: len(best.ids)]
        np.testing.assert_allclose(best.log_probs, log_probs, atol=1e-5)
        np.testing.assert_allclose(best.score, outputs["score"][row], atol=1e-5)


def test_alternatives_are_those_of_the_saved_model(ours, served, pairs):
    wanted = served.alternatives(*tensors(pairs))
    wanted = {name: x.numpy() for name, x in wanted.items()}
    assert any(map(any, wanted["words"]))
    for row, found in enumerate(ours.alternatives(*pairs, [None] * len(pairs[0]))):
        there = wanted["words"][row] != b""
        for name, field in (("words", "word"), ("translations", "translation")):
            said = [text.decode() for text in wanted[name][row][there]]
            assert [getattr(one, field) for one in found] == said
        for name, field in (("probabilities", "probability"), ("scores", "score")):
            numbers = [getattr(one, field) for one in found]
            np.testing.assert_allclose(numbers, wanted[name][row][there], atol=1e-5)


def test_words_are_those_of_the_saved_model(tokenizer, target, rng):
    spelling = Spelling(target, inside_characters(tokenizer))
    ids = rng.integers(0, tokenizer.vocab_size, (7, 5))
    log_probs = -rng.random(ids.shape).astype("float32")
    tokens = tf.where(ids > END_ID, tokenizer.tokens(tf.constant(ids, tf.int32)), "")
    words, probabilities = words_in_graph(tokenizer, tokens, tf.constant(log_probs))
    for row in range(len(ids)):
        found, sure = words_of(spelling, ids[row], log_probs[row])
        there = words[row].numpy() != b""
        assert list(found) == [word.decode() for word in words[row].numpy()[there]]
        np.testing.assert_allclose(sure, probabilities[row].numpy()[there], rtol=1e-5)


def test_a_prefix_that_no_tokens_spell_is_refused(ours):
    with pytest.raises(ValueError, match=r"^prefix\[1\] has characters .* for: a☃$"):
        ours.alternatives(SOURCES[:2], ["", "a☃"], [None, None])


def test_characters_go_on_with_a_word_as_in_the_graph(tokenizer, target):
    spelling = Spelling(target, inside_characters(tokenizer))
    codes = [code for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    codes = [code for code in codes if unicodedata.category(chr(code)) != "Cn"]
    texts = tf.constant([chr(code).encode() for code in codes])
    wanted = tf.strings.regex_full_match(texts, INSIDE).numpy()
    other = [chr(c) for c, x in zip(codes, wanted, strict=True) if spelling.goes_on(chr(c)) != x]
    assert [(x, unicodedata.name(x, "")) for x in other] == []
