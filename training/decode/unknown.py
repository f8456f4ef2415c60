"""Words that the target's vocabulary lacks: each becomes the source word that was looked at."""

from __future__ import annotations

import tensorflow as tf

from training.data.ids import UNK_ID


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
