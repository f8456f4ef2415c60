"""The words of translations against a loop over their tokens."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from training.data.tokens.pieces import train_sentencepiece
from training.data.tokens.store import END_ID
from training.data.tokens.tokenizers import SentencePieceTokenizer, VocabularyTokenizer
from training.decode.texts import words_of


def subwords():
    lines = ["ab ba", "abab b", "ba a ab"] * 7
    return SentencePieceTokenizer(train_sentencepiece(lines, 11, normalization="identity"))


TOKENIZERS = {
    "sentencepiece": subwords,
    "words": lambda: VocabularyTokenizer("words", ["a", "ab", "▁a", "▁ab", "▁7", "-", "▁(", "給"]),
    "characters": lambda: VocabularyTokenizer("characters", ["a", "b", " ", "\u00a0", ".", "の"]),
    "letters": lambda: VocabularyTokenizer("letters", ["a", "b", " ", "e", "\u0301"]),
    "symbols": lambda: VocabularyTokenizer("symbols", ["a", "ab", "b"]),
}


def goes_on(text):
    """Whether a token goes on with the word before it: letters but Chinese ones, digits, marks."""
    name = unicodedata.name(text[:1] or " ", "")
    own = name.startswith(("CJK", "HIRAGANA", "KATAKANA"))
    return text[:1] in "'’-" or (unicodedata.category(text[0])[0] in "LNM" and not own)


def expected_words(kind, tokens, log_probs):
    words, last = [], ""
    for token, log_prob in zip(tokens, log_probs, strict=True):
        if token:
            text = {"symbols": f" {token}"}.get(kind, token.replace("▁", " "))
            if words and (goes_on(text) or last == " "):
                words[-1] = (words[-1][0] + text, min(words[-1][1], log_prob))
            else:
                words.append((text, log_prob))
            last = text
    texts = [unicodedata.normalize("NFC", text) if kind == "letters" else text for text, _ in words]
    if texts and kind in ("sentencepiece", "words", "symbols"):
        texts[0] = texts[0].removeprefix(" ")
    return texts, [np.exp(least) for _, least in words]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_words_are_runs_of_letters_and_as_probable_as_their_least_probable_token(kind, rng):
    tokenizer = TOKENIZERS[kind]()
    ids = rng.integers(END_ID + 1, tokenizer.vocab_size, (41, 7)).astype("int32")
    ids[np.arange(7) >= rng.integers(0, 8, (41, 1))] = END_ID
    log_probs = -rng.random(ids.shape).astype("float32")
    tokens = tf.where(ids > END_ID, tokenizer.tokens(tf.constant(ids)), "")
    words, probabilities = words_of(tokenizer, tokens, tf.constant(log_probs))
    assert words.shape == probabilities.shape
    for row in range(len(ids)):
        said = [token.decode() for token in tokens[row].numpy()]
        wanted, sure = expected_words(kind, said, log_probs[row])
        count, found = len(wanted), [word.decode() for word in words[row].numpy()]
        assert found == wanted + [""] * (len(found) - count)
        np.testing.assert_allclose(probabilities[row, :count], sure, rtol=1e-5)
        assert not probabilities[row, count:].numpy().any()
        text = tokenizer.detokenize(ids[row : row + 1])[0].numpy().decode()
        assert "".join(wanted).lstrip(" ") == text.lstrip(" ")


def test_no_word_is_empty_where_a_text_begins_with_a_lone_space_or_has_hidden_tokens():
    said = tf.constant([["▁", "給", "", "▁a", "b"], ["", "▁", "▁", "a", "給"]])
    log_probs = tf.constant([[-1.0, -2, -9, -3, -1], [-9.0, -1, -1, -4, -2]])
    words, least = words_of(subwords(), said, log_probs)
    found = [[word.decode() for word in row] for row in words.numpy()]
    assert found == [["給", " ab"], [" a", "給"]]
    np.testing.assert_allclose(least, np.exp([[-2.0, -3.0], [-4.0, -2.0]]), rtol=1e-6)
