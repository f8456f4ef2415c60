"""Texts in, texts out, with runs in this process: what evaluate, translate and train share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from training.decoding import force_decode, search
from training.pipeline import source_batches
from training.run import Run


def make_translator(
    runs: Sequence[Run],
    *,
    beam_width: int = 5,
    length_penalty: float = 1.0,
    batch_size: int = 64,
    max_source_length: int = 256,
) -> Callable[..., list[str]]:
    """Return a function from texts to translations, compiled once for all calls.

    Args:
        runs: a run, or several that are used as an ensemble.
        beam_width: hypotheses kept for each sentence; 1 is greedy search.
        length_penalty: see `keras_attention.beam_search`.
        batch_size: texts translated together; they are sorted by length for it.
        max_source_length: tokens after which a text is cut.

    Returns:
        `translate(texts, progress=None)`; `progress` is called with the number of texts done.
    """
    models = [run.model for run in runs]
    source_tokenizer, target_tokenizer = runs[0].source_tokenizer, runs[0].target_tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def translate_ids(ids):
        found = search(models, ids, beam_width=beam_width, length_penalty=length_penalty)
        return target_tokenizer.detokenize(found.ids[:, 0])

    def translate(texts: Sequence[str], progress: Callable[[int], None] | None = None) -> list[str]:
        result = [""] * len(texts)
        batches = source_batches(texts, source_tokenizer, batch_size, max_source_length)
        for indices, ids in batches:
            found = translate_ids(tf.constant(ids)).numpy()
            for index, text in zip(indices, found, strict=True):
                result[index] = text.decode("utf-8", errors="replace")
            if progress:
                progress(len(indices))
        return result

    return translate


def forced_weights(
    runs: Sequence[Run], source: str, target: str
) -> tuple[list[str], list[str], np.ndarray]:
    """Attention weights of one pair, the decoder made to say the target.

    Returns:
        The S source tokens, the T target tokens, and weights `(T, S)`.
    """
    source_ids = runs[0].source_tokenizer.tokenize(tf.constant([source])).to_tensor()
    target_ids = runs[0].target_tokenizer.tokenize(tf.constant([target])).to_tensor()
    start = tf.fill([1, 1], 2)
    shifted = tf.concat([start, target_ids[:, :-1]], axis=1)
    weights = force_decode([run.model for run in runs], source_ids, shifted).numpy()[0]
    return (
        _strings(runs[0].source_tokenizer.tokens(source_ids)),
        _strings(runs[0].target_tokenizer.tokens(target_ids)),
        weights,
    )


def _strings(tokens: tf.Tensor) -> list[str]:
    return [token.decode("utf-8", errors="replace") for token in tokens.numpy()[0]]
