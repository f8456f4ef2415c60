"""The words of translations, in this process and in Node, beside those of a SavedModel."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from serving.portable.read._tokenizers import SentencePiece, Vocabulary, Words
from tests.serving.javascript import NODE, run
from tests.training.decode.test_words import TOKENIZERS
from training.data.rules import goes_on
from training.data.tokens.pieces import model_of
from training.data.tokens.splitting import INSIDE, character_classes
from training.data.tokens.store import END_ID
from training.decode.texts import inside_characters, words_of

WORDS = """
import { readFileSync } from "node:fs";
import { wordsBy } from "engine/words.js";
const { kind, tokens, rows } = JSON.parse(readFileSync(0, "utf8"));
const words = wordsBy({ kind, token: (id) => tokens[id] });
process.stdout.write(JSON.stringify(rows.map(([ids, logProbs]) => words(ids, logProbs))));
"""


def in_node(kind, tokenizer, ids, log_probs):
    tokens = [token.decode() for token in tokenizer.tokens(tf.range(tokenizer.vocab_size)).numpy()]
    rows = list(zip(ids.tolist(), log_probs.tolist(), strict=True))
    found = run(WORDS, given={"kind": kind, "tokens": tokens, "rows": rows})
    return [(one["words"], one["word_probabilities"]) for one in found]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_words_are_those_of_the_saved_model(kind, tmp_path, rng):
    tokenizer = TOKENIZERS[kind]()
    if kind == "sentencepiece":
        (tmp_path / "target.model").write_bytes(model_of(tokenizer.state()))
        target = SentencePiece(tmp_path / "target.model")
    else:
        target = Vocabulary({**tokenizer.state(), "characters": character_classes()})
    ids = rng.integers(0, tokenizer.vocab_size, (41, 5))
    ids[20:] = np.maximum(ids[20:], END_ID + 1)  # as a search's, of which Node is asked
    log_probs = -rng.random(ids.shape).astype("float32")
    tokens = tf.where(ids > END_ID, tokenizer.tokens(tf.constant(ids, tf.int32)), "")
    words, probabilities = words_of(tokenizer, tokens, tf.constant(log_probs))
    join = Words(target, inside_characters(tokenizer))
    answers = [join(*row) for row in zip(ids, log_probs, strict=True)]
    if NODE:
        answers += in_node(kind, tokenizer, ids[20:], log_probs[20:])
    for row, (found, sure) in zip([*range(41), *range(20, 41)], answers, strict=False):
        count = np.count_nonzero(probabilities[row])
        assert list(found) == [word.decode() for word in words[row].numpy()[:count]]
        np.testing.assert_allclose(sure, probabilities[row, :count], rtol=1e-5)


def test_characters_go_on_with_a_word_as_in_the_graph():
    codes = [code for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    codes = [code for code in codes if unicodedata.category(chr(code)) != "Cn"]
    texts = tf.constant([chr(code).encode() for code in codes])
    wanted = tf.strings.regex_full_match(texts, INSIDE).numpy()
    other = [chr(c) for c, x in zip(codes, wanted, strict=True) if goes_on(chr(c)) != x]
    assert [(x, unicodedata.name(x, "")) for x in other] == []
