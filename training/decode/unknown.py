"""Words that the target's vocabulary lacks: each becomes the source word that was looked at."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from training.command.errors import UserError
from training.data.ids import UNK_ID
from training.data.tokenizers import VocabularyTokenizer
from training.runs.run import Run


def check_replaces_unknown(runs: Sequence[Run]) -> None:
    """Raise a UserError where unknown words of these runs cannot be replaced.

    The source must be a text that all runs attend to. Both sides must be cut in the same way, into
    tokens that a vocabulary may lack: SentencePiece spells what it does not know.
    """
    for run in runs:
        if run.config.source != "text" or run.config.target != "text":
            raise UserError(
                f"--replace-unknown expected runs from text to text. Received: {run.path}, "
                f"source = {run.config.source}"
            )
        if run.config.attention == "none":
            raise UserError(
                f"--replace-unknown expected attention. Received: {run.path}, attention = none"
            )
        sides = run.source_tokenizer, run.target_tokenizer
        kinds = [side.kind for side in sides]
        if len(set(kinds)) > 1 or not isinstance(sides[1], VocabularyTokenizer):
            raise UserError(
                "--replace-unknown expected words, characters or symbols as the tokenizer of both "
                f"sides. Received: {run.path}, {' and '.join(kinds)}"
            )


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
