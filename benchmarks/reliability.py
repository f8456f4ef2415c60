"""How sure a model is, beside how often it is right.

    python benchmarks/reliability.py --run runs/A --run runs/B --png reliability.png

Of each run's dev split: the words of its best translations, or the characters that it reads of
images, in ten parts of as many by their probability; of each part the mean probability and the
share that is right. A word is right where it is among those that translation and reference have in
common, in order: another word that would do counts as wrong. The calibration error is the mean
distance of both (Guo et al. 2017, eq. 3).
"""

from __future__ import annotations

import training.command.startup  # noqa: F401

import argparse
import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from serving.export.images import ExportedReader
from serving.export.texts import Exported
from training.data.splits import load_split
from training.decode.words import words_of
from training.runs.run import Run, load_run
from training.score.label_evaluation import draw_calibration
from training.score.labels import calibration_curve, calibration_error
from training.sources.kinds import KINDS

BATCH = 50
Sure = tuple[list[bytes], list[float]]  # words, and the probability of each


def words(run: Run, limit: int) -> Iterator[tuple[Sure, list[bytes]]]:
    """Yield the words of translations, and those of their references."""
    split, tokenizer = load_split(run.config, "dev", limit=limit)[0], run.target_tokenizer
    translate = tf.function(Exported([run]).translate, autograph=False, reduce_retracing=True)
    for sources, references in _batches(split):
        found = translate(tf.constant(sources))
        tokens = tokenizer.tokens(tokenizer.tokenize(tf.constant(references)).to_tensor())
        wanted, _ = words_of(tokenizer, tokens, tf.zeros(tf.shape(tokens)))
        sure = _shown(found["words"], found["word_probabilities"])
        yield from zip(sure, (row for row, _ in _shown(wanted, wanted)), strict=True)


def characters(run: Run, limit: int) -> Iterator[tuple[Sure, list[bytes]]]:
    """Yield what is read of images, character by character, and what stands there."""
    split = run.source.load_split(run.config, run.config.data, "dev", limit=limit)
    read = tf.function(ExportedReader([run]).read, autograph=False, reduce_retracing=True)
    for images, references in _batches(split):
        found = read(image_bytes=tf.constant([_contents(image) for image in images]))
        sure = _shown(found["tokens"], found["token_probabilities"])
        wanted = ([x.strip().encode() for x in text] for text in references)
        yield from zip(sure, wanted, strict=True)


def _batches(split: Any) -> Iterator[tuple[list[Any], list[str]]]:
    firsts = [each[0] for each in split.references]
    for start in range(0, len(firsts), BATCH):
        rows = slice(start, start + BATCH)
        yield list(split.sources[rows]), firsts[rows]


def _contents(image: bytes | Path) -> bytes:
    return image.read_bytes() if isinstance(image, Path) else image


def _shown(texts: tf.Tensor, numbers: tf.Tensor) -> Iterator[tuple[list[bytes], list[Any]]]:
    """Yield the texts of each row without padding and without spaces around, and their numbers."""
    for row, own in zip(texts.numpy().tolist(), numbers.numpy().tolist(), strict=True):
        said = [text.strip() for text in row if text]
        yield said, own[: len(said)]


def reliability(pairs: Iterator[tuple[Sure, list[bytes]]]) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each word is right, and its probability."""
    right, probabilities = [], []
    for (said, sure), wanted in pairs:
        matcher = difflib.SequenceMatcher(None, said, wanted, autojunk=False)
        own = np.zeros(len(said))
        for block in matcher.get_matching_blocks():
            own[block.a : block.a + block.size] = 1
        right.append(own)
        probabilities.append(sure)
    return np.concatenate(right), np.concatenate(probabilities)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, action="append", required=True, help="several times")
    parser.add_argument("--limit", type=int, default=2000, help="examples of each; default: 2000")
    parser.add_argument("--png", type=Path, help="where the curves are drawn")
    options = parser.parse_args(arguments)
    drawn = {}
    for path in options.run:
        run = load_run(path)
        said = words if KINDS[run.config.source].tokens else characters
        drawn[path.name] = right, sure = reliability(said(run, options.limit))
        parts = [[round(x, 3) for x in pair] for pair in calibration_curve(right, sure)]
        error = round(calibration_error(right, sure), 4)
        row = {"run": path.name, "words": len(right), "calibration_error": error, "parts": parts}
        print(json.dumps(row), flush=True)
    if options.png:
        draw_calibration(drawn, options.png)


if __name__ == "__main__":
    main()
