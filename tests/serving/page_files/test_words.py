"""The words of translations in the browser's engine, in Node, beside those of a SavedModel."""

import random

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.javascript import needs_node, run
from tests.training.decode.test_words import TOKENIZERS
from training.decode.words import words_of

pytestmark = needs_node
WORDS = """
import { readFileSync } from "node:fs";
import { wordsBy } from "engine/words.js";
const { kind, tokens, said } = JSON.parse(readFileSync(0, "utf8"));
const words = wordsBy({ kind, token: (id) => tokens[id] });
process.stdout.write(JSON.stringify(said.map(([ids, logProbs]) => words(ids, logProbs))));
"""


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_words_are_those_of_the_saved_model(kind):
    tokenizer, rng = TOKENIZERS[kind](), random.Random(5)
    size = tokenizer.vocab_size
    tokens = [token.decode() for token in tokenizer.tokens(tf.range(size)).numpy()]
    ids = [[rng.randrange(4, size) for _ in range(7)] for _ in range(50)]
    log_probs = [[-rng.random() for _ in row] for row in ids]
    said = list(zip(ids, log_probs, strict=True))
    words, probabilities = words_of(
        tokenizer, tokenizer.tokens(tf.constant(ids)), tf.constant(log_probs)
    )
    for row, one in enumerate(run(WORDS, given={"kind": kind, "tokens": tokens, "said": said})):
        count = int(np.count_nonzero(probabilities[row]))
        assert one["words"] == [word.decode() for word in words[row].numpy()[:count]]
        np.testing.assert_allclose(one["word_probabilities"], probabilities[row, :count], rtol=1e-5)
