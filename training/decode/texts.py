"""Translation of texts and attention to texts, with runs in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.command.progress import print_note
from training.data.batches._batches import batch_of, source_batches
from training.data.rules import MARK, PAD_ID, START_ID, UNK_ID
from training.data.tokens.splitting import INSIDE, composed
from training.data.tokens.tokenizers import Tokenizer
from training.decode._native import graph_or_eager, native
from training.decode.search import bound_of, check_search, force_decode, search
from training.decode.settings import SearchSettings
from training.decode.steps import constant_steps
from training.decode.windows import join, spelling_of, windows
from training.graphs import graph
from training.runs.run import Run
from training.sources.kinds import SOURCE_KINDS


def words_of(
    tokenizer: Tokenizer, tokens: tf.Tensor, log_probs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the words of texts, and the probability of each word's least probable token.

    The product over a word's tokens would be of little use: with label smoothing, the surest token
    has a probability of 0.95, and ten letters of a date a product of 0.6.

    A word is a run of letters and digits; every other character is a word of its own. A word
    includes the space before it, so the words of a text, joined, are the text.

    Args:
        tokenizer: the tokenizer of the target.
        tokens: string `(B, T)`, "" where there is no token.
        log_probs: log-probabilities of the tokens, `(B, T)`.

    Returns:
        Words, string `(B, W)`, padded with "", and probabilities, float32 `(B, W)`, padded with 0.
    """
    tokens, log_probs = shown_first(tokens, log_probs)
    texts, shown = tokens, tokens != ""
    if tokenizer.kind == "symbols":
        texts = tf.where(shown, " " + tokens, "")
    elif tokenizer.kind in ("sentencepiece", "words"):
        texts = tf.strings.regex_replace(tokens, MARK, " ")
    begins = shown & ~tf.strings.regex_full_match(texts, rf"(?s){INSIDE}.*")
    begins &= tf.pad(texts[:, :-1], [[0, 0], [1, 0]]) != " "  # a lone space joins the next word
    begins |= shown & (tf.cumsum(tf.cast(shown, tf.int32), 1) == 1)
    counts = tf.cumsum(tf.cast(begins, tf.int32), 1)
    batch, most = tf.shape(tokens)[0], tf.reduce_max(tf.concat([[0], tf.reshape(counts, [-1])], 0))
    # The number of the word of each token, (B, T). Tokens that are not shown go to an extra word
    # after the last one.
    places = tf.range(batch)[:, None] * (most + 1) + tf.where(shown, counts - 1, most)
    size, shape = batch * (most + 1), [batch, most + 1]
    words = tf.strings.unsorted_segment_join(texts, places, size)
    words = tf.reshape(words, shape)[:, :most]
    words = composed(tokenizer.kind, words)
    if tokenizer.kind not in ("characters", "letters"):  # omit a space at the start of a text
        first = tf.range(most) == 0
        words = tf.where(first, tf.strings.regex_replace(words, "^ ", ""), words)
    least = tf.math.unsorted_segment_min(log_probs, places, size)
    least = tf.reshape(least, shape)[:, :most]
    inside = tf.range(most) < tf.reduce_max(counts, 1, keepdims=True)
    return words, tf.where(inside, tf.exp(least), 0.0)


def shown_first(tokens: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
    """Return tokens and values, `(B, T, …)`, sorted so that tokens other than "" come first."""
    order = tf.argsort(tf.where(tokens != "", 0, 1), axis=1, stable=True)
    return [tf.gather(value, order, batch_dims=1) for value in (tokens, *values)]


def inside_characters(tokenizer: Tokenizer) -> str:
    """Return the characters of a vocabulary that are part of words, for other programs."""
    tokens = tokenizer.tokens(tf.range(tokenizer.vocab_size)).numpy()
    characters = sorted(set("".join(token.decode("utf-8", "replace") for token in tokens)))
    matches = tf.strings.regex_full_match(tf.constant(characters, tf.string), INSIDE).numpy()
    return "".join(x for x, inside in zip(characters, matches, strict=True) if inside)


def replace_unknown(ids: tf.Tensor, weights: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Replace each unknown token by the source token with the largest attention weight.

    Jean et al. 2015 (arXiv 1412.2007) and OpenNMT's `replace_unk` do the same.

    Args:
        ids: int32 `(…, T)`.
        weights: `(…, T, S)`.
        vocab_size: size of the target's vocabulary.

    Returns:
        int32 `(…, T)`: an unknown token becomes `vocab_size + i`, which `Tokenizer.detokenize`
        reads as the token at position `i` of the source. It stays unknown if all weights are 0.
    """
    places = tf.argmax(weights, axis=-1, output_type=tf.int32)
    looked = tf.reduce_max(weights, axis=-1) > 0
    return tf.where((ids == UNK_ID) & looked, vocab_size + places, ids)


@dataclass(frozen=True)
class Translation:
    """One translation of a text."""

    text: str  # the translated text
    score: float  # see `keras_attention.beam_search`
    probability: float  # of the least probable token, END included: 0 to 1, see `words_of`


BATCH_SIZE, COMPILED_BATCH_SIZE = 64, 512  # a GPU takes as long for 512 texts as for 64


def make_translator(
    runs: Sequence[Run], settings: SearchSettings | None = None, batch_size: int | None = None
) -> Callable[..., list[str]]:
    """Return a function from texts to their best translations: see `make_nbest`."""
    nbest = make_nbest(runs, settings, batch_size)

    def translate(texts: Sequence[str], progress: Callable[[int], None] | None = None) -> list[str]:
        return [outputs[0].text for outputs in nbest(texts, progress)]

    return translate


def make_nbest(
    runs: Sequence[Run], settings: SearchSettings | None = None, batch_size: int | None = None
) -> Callable[..., list[list[Translation]]]:
    """Return a function from texts to the n best translations of each, compiled once for all calls.

    A text without tokens, such as an empty line, has empty translations with score 0. If the
    configuration compiles with XLA, XLA compiles the search for few batch shapes.

    Args:
        runs: the runs to translate with; several runs are an ensemble.
        settings: the settings of the search; by default `SearchSettings()`.
        batch_size: texts, sorted by length, in a batch; by default 64, or 512 with XLA.

    Returns:
        A function `translate(texts, progress=None)`. It calls `progress` with the number of texts
        done since the last call.

    Raises UserError if the settings do not fit the runs.
    """
    settings = settings or SearchSettings()
    check_search(settings, runs)
    models, num_results, config = [run.model for run in runs], settings.num_results, runs[0].config
    source, target_tokenizer = runs[0].source, runs[0].target_tokenizer
    reads_texts = SOURCE_KINDS[config.source].tokens
    rounded = settings.precision == "bfloat16"
    spelling = spelling_of(runs)
    steps = constant_steps(models, settings.beam_width, settings.precision) if rounded else None
    compiled = config.compiles() and not rounded  # constant kernels are for CPUs
    size = batch_size or (COMPILED_BATCH_SIZE if compiled else BATCH_SIZE)
    arguments: dict[str, Any] = {
        "steps": steps,
        "max_length": None if reads_texts else config.max_target_length,
        "bound": bound_of(runs),
        "return_attention_weights": settings.replaces_unknown or spelling is not None,
    }
    copies = config.copy or settings.replaces_unknown
    encoder = models[0].get_layer("encoder")
    spec = tf.TensorSpec(encoder.input.shape, encoder.input.dtype)

    searched = native(models, lambda ids: search(models, ids, settings, **arguments))

    def search_ids(ids):
        if spelling:
            parts = windows(ids, spelling)
            outputs = join(searched(parts.ids), parts)
        else:
            outputs = searched(ids)
        ids = outputs.ids
        if settings.replaces_unknown:
            ids = replace_unknown(ids, outputs.attention_weights, target_tokenizer.vocab_size)
        probabilities = tf.exp(tf.minimum(tf.reduce_min(outputs.log_probs, axis=-1), 0.0))
        return ids, outputs.scores, probabilities

    if compiled and keras.backend.backend() == "tensorflow":
        search_ids = graph(spec, jit_compile=True)(search_ids)

    @graph_or_eager(spec, tf.TensorSpec([None], tf.string))
    def translate_ids(ids, copied_from):
        ids, scores, probabilities = search_ids(ids)
        flat = tf.reshape(ids, [-1, tf.shape(ids)[2]])  # (B · num_results, T)
        most = settings.max_source_length
        copied = tokens_to_copy(runs[0], copied_from, most, num_results) if copies else None
        text = target_tokenizer.detokenize(flat, copied)
        return tf.reshape(text, [-1, num_results]), scores, probabilities

    def translate(
        texts: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[list[Translation]]:
        result = [[Translation("", 0.0, 1.0)] * num_results for _ in texts]
        batches = source_batches(source.rows(texts), size, settings.max_source_length, compiled)
        done = 0
        for indices, ids in batches:
            read = [texts[index] for index in indices] if copies else []
            outputs = map(np.array, translate_ids(ids, tf.constant(read, tf.string)))
            for index, *columns in zip(indices, *outputs, strict=True):
                result[index] = [
                    Translation(text.decode("utf-8", errors="replace"), float(score), float(chance))
                    for text, score, chance in zip(*columns, strict=True)
                ]
            count = len(set(indices))
            done += count
            if progress:
                progress(count)
        if progress and done < len(texts):
            progress(len(texts) - done)
        return result

    return translate


def say_cut(run: Run, texts: Sequence[str], settings: SearchSettings) -> None:
    """Print to standard error how many texts are cut, or have letters unseen in training."""
    most = settings.max_source_length
    if cut := np.count_nonzero(run.source.rows(texts).lengths > most):
        print(
            f"Warning: {cut} of {len(texts)} texts have more than {most} tokens, and the end "
            "is cut off",
            file=sys.stderr,
        )
    unknown = run.source_tokenizer.unknown(tf.constant(texts, tf.string)).numpy()
    if some := [letters.decode() for letters in unknown if letters]:
        letters = " ".join(dict.fromkeys("".join(some)))
        print_note(
            f"Warning: {len(some)} of {len(texts)} texts have letters that training never saw "
            f"({letters}). Do not trust the output for them",
            error=True,
        )


def tokens_to_copy(run: Run, text: tf.Tensor, most: int, results: int = 1) -> tf.Tensor:
    """Return the first `most` tokens of texts `(B,)`, each `results` times: `(B·results, S)`."""
    return tf.repeat(run.source_tokenizer.split(text)[:, :most].to_tensor(), results, axis=0)


def dense_ids(ids: tf.RaggedTensor) -> tf.Tensor:
    """Pad ids `(B, None)` to `(B, S)`, S at least 1: an empty text becomes padding."""
    dense = ids.to_tensor(PAD_ID)
    missing = tf.cast(tf.equal(tf.shape(dense)[1], 0), tf.int32)
    return tf.pad(dense, [[0, 0], [0, missing]], constant_values=PAD_ID)


@dataclass(frozen=True)
class Attended:
    """The attention weights of one pair under forced decoding."""

    source_tokens: list[str]  # the S source tokens; empty unless the source is a text
    target_tokens: list[str]  # the T target tokens, without END
    weights: np.ndarray  # float32 `(T, S)`; for an image `(T, h, w)`
    end_weights: np.ndarray  # the weights for END, float32 `(S,)` or `(h, w)`


def make_attender(runs: Sequence[Run]) -> Callable[[Sequence[Any], Sequence[str]], list[Attended]]:
    """Return a function from N sources and N targets to N `Attended`, by forced decoding.

    Weights are averaged over the runs. The function is compiled once for all calls.
    """
    models, source = [run.model for run in runs], runs[0].source
    tokenizer, encoder = runs[0].target_tokenizer, models[0].get_layer("encoder")
    spec = tf.TensorSpec(encoder.input.shape, encoder.input.dtype)

    decode = native(models, lambda batch, ids: force_decode(models, batch, ids))

    @graph_or_eager(spec, tf.TensorSpec([None], tf.string))
    def attend_batch(batch, targets):
        target = tokenizer.tokenize(targets)
        ids = target.to_tensor()
        start = tf.fill([tf.shape(ids)[0], 1], START_ID)
        weights = decode(batch, tf.concat([start, ids], axis=1))
        return tokenizer.tokens(ids), target.row_lengths(), weights

    def attend(sources: Sequence[Any], targets: Sequence[str]) -> list[Attended]:
        rows, result = source.rows(sources), []
        for first in range(0, len(sources), BATCH_SIZE):
            chosen = np.arange(first, min(first + BATCH_SIZE, len(sources)))
            batch = batch_of(rows, chosen, int(rows.lengths.max()))
            read = [()] * len(chosen)
            if source.places is None:
                read = runs[0].source_tokenizer.tokens(tf.constant(batch)).numpy()
            said = attend_batch(batch, tf.constant(targets[first : first + BATCH_SIZE], tf.string))
            outputs = zip(chosen, read, *(x.numpy() for x in said), strict=True)
            for number, tokens, target, length, weights in outputs:
                shape = source.places or (rows.lengths[number],)
                # (length + 1, S) or (length + 1, h, w): the targets and END
                looked = weights[: length + 1, : np.prod(shape)].reshape(length + 1, *shape)
                words = _decoded(tokens[: shape[0]]), _decoded(target[:length])
                result.append(Attended(*words, looked[:-1], looked[-1]))
        return result

    return attend


def _decoded(tokens: Iterable[bytes]) -> list[str]:
    return [token.decode("utf-8", errors="replace") for token in tokens]
