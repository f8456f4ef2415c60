"""The words of translations, and how sure a model is of each."""

from __future__ import annotations

import tensorflow as tf

from training.data.ids import UNK_ID
from training.data.tokenizers import LETTERS, Tokenizer, composed

# The characters that go on with a word; all others stand for themselves.
INSIDE = rf"(?:{LETTERS}|['’-])"


def words_of(
    tokenizer: Tokenizer, tokens: tf.Tensor, log_probs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the words of texts, and the probability of the least probable token of each.

    A product over a word's tokens would say little: label smoothing leaves 0.95 to the surest
    token, and ten letters of a date 0.6.

    A word is a run of letters and digits; every other character is a word of its own. Each has the
    space in front of it: joined, they are the text.

    Args:
        tokenizer: of the text.
        tokens: string `(B, T)`, "" where there is none.
        log_probs: float32 `(B, T)`.

    Returns:
        string `(B, W)`, padded with "", and float32 `(B, W)`, the least probability of a word's
        tokens, padded with 0.
    """
    texts, shown = surfaces_of(tokenizer.kind, tokens), tokens != ""
    begins = shown & ~tf.strings.regex_full_match(texts, rf"(?s){INSIDE}.*")
    begins |= shown & (tf.cumsum(tf.cast(shown, tf.int32), 1) == 1)
    counts = tf.cumsum(tf.cast(begins, tf.int32), 1)
    batch, most = tf.shape(tokens)[0], tf.reduce_max(tf.concat([[0], tf.reshape(counts, [-1])], 0))
    # Tokens that are not shown are put aside, behind the last word.
    places = tf.range(batch)[:, None] * (most + 1) + tf.where(shown, counts - 1, most)
    size, shape = batch * (most + 1), [batch, most + 1]
    words = tf.strings.unsorted_segment_join(texts, places, size)
    words = tf.reshape(words, shape)[:, :most]
    words = composed(tokenizer.kind, words)
    if tokenizer.kind not in ("characters", "letters"):  # a text's first space is not shown
        first = tf.range(most) == 0
        words = tf.where(first, tf.strings.regex_replace(words, "^ ", ""), words)
    least = tf.math.unsorted_segment_min(log_probs, places, size)
    least = tf.reshape(least, shape)[:, :most]
    inside = tf.range(most) < tf.reduce_max(counts, 1, keepdims=True)
    return words, tf.where(inside, tf.exp(least), 0.0)


def surfaces_of(kind: str, tokens: tf.Tensor) -> tf.Tensor:
    """Return what tokens of a kind of tokenizer add to a text, but for the first one's space."""
    if kind == "symbols":
        return tf.where(tokens == "", "", " " + tokens)
    spaced = kind in ("sentencepiece", "words")
    return tf.strings.regex_replace(tokens, "▁", " ") if spaced else tokens


def inside_characters(tokenizer: Tokenizer) -> str:
    """Return the characters of a vocabulary that go on with a word, for programs that lack them."""
    tokens = tokenizer.tokens(tf.range(tokenizer.vocab_size)).numpy()
    characters = sorted(set("".join(token.decode("utf-8", "replace") for token in tokens)))
    matches = tf.strings.regex_full_match(tf.constant(characters, tf.string), INSIDE).numpy()
    return "".join(x for x, inside in zip(characters, matches, strict=True) if inside)


def replace_unknown(ids: tf.Tensor, weights: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Let each unknown token be the one of the source with the largest attention weight.

    Jean et al. 2015 (arXiv 1412.2007) and OpenNMT's `replace_unk` do the same.

    Args:
        ids: int32 `(…, T)`, target tokens.
        weights: `(…, T, S)`, where the decoder looked to say each.
        vocab_size: V, of the target.

    Returns:
        int32 `(…, T)`: an unknown token is `V + i`, which `Tokenizer.detokenize` takes as the one
        at place `i` of the source. It stays unknown where no place has any weight.
    """
    places = tf.argmax(weights, axis=-1, output_type=tf.int32)
    looked = tf.reduce_max(weights, axis=-1) > 0
    return tf.where((ids == UNK_ID) & looked, vocab_size + places, ids)
