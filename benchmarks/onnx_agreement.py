"""Translations of ONNX exports beside a SavedModel: python benchmarks/onnx_agreement.py

    python benchmarks/onnx_agreement.py --run RUN --savedmodel a/1 --onnx b/1 c/1

For the dev sentences of the run: how many translations are the SavedModel's, by how much their
scores differ, and BLEU with the interval of the difference by a paired bootstrap over sentences
(Koehn 2004). For the first 200 that are the same, by how much attention weights differ. The exports
have the same beam width. Prints a line for each export; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_SAMPLES, _WEIGHED, _BATCH = 2000, 200, 32


def by_saved_model(path: Path, signature: str, texts: list[str]) -> list[dict[str, Any]]:
    """What a SavedModel answers to each text, by output."""
    import tensorflow as tf

    from serving.savedmodel.session import ModelSession

    found = []
    with ModelSession(path) as session:
        for start in range(0, len(texts), _BATCH):
            batch = [text.encode() for text in texts[start : start + _BATCH]]
            inputs = {"text": tf.make_tensor_proto(batch)}
            out = session.run(session.signatures[signature], inputs)
            found += [{name: x[row] for name, x in out.items()} for row in range(len(batch))]
    return found


def compare(
    path: Path, split: Any, wanted: list[dict[str, Any]], looked: list[dict[str, Any]], seed: int
) -> dict[str, float]:
    """How an ONNX export answers beside what the SavedModel does."""
    from serving.client.local import LocalTranslator
    from training.score.metrics import bleu_of, bleu_statistics

    translator = LocalTranslator(path)
    found = translator.translate(split.sources)
    expected = [each["translation"].decode() for each in wanted]
    same = [one.text == other for one, other in zip(found, expected, strict=True)]
    gaps = [abs(one.score - other["score"]) for one, other in zip(found, wanted, strict=True)]
    weights = [
        np.abs(np.array(one.attention_weights) - _cut(other, one)).max(initial=0)
        for one, other in zip(translator.align(split.sources[:_WEIGHED]), looked, strict=True)
        if one.translation == other["translation"].decode()
    ]
    ours, theirs = (
        bleu_statistics(texts, split.references)
        for texts in ([each.text for each in found], expected)
    )
    rng, count = np.random.default_rng(seed), len(found)
    rows = rng.integers(0, count, (_SAMPLES, count))
    moved = [bleu_of(ours[row].sum(0)) - bleu_of(theirs[row].sum(0)) for row in rows]
    low, high = np.quantile(moved, [0.025, 0.975])
    return {
        "sentences": count,
        "same": sum(same),
        "score_difference": float(np.max(gaps, where=same, initial=0)),
        "weight_difference": float(np.max(weights)),
        "bleu": round(bleu_of(ours.sum(0)), 2),
        "bleu_of_saved_model": round(bleu_of(theirs.sum(0)), 2),
        "difference_low": round(float(low), 2),
        "difference_high": round(float(high), 2),
    }


def _cut(looked: dict[str, Any], alignment: Any) -> np.ndarray:
    """The weights of a SavedModel's alignment, without padding."""
    shape = len(alignment.target_tokens), len(alignment.source_tokens)
    weights: np.ndarray = looked["attention_weights"][: shape[0], : shape[1]]
    return weights.reshape(shape)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="whose dev split is translated")
    parser.add_argument("--savedmodel", type=Path, required=True, help="a version")
    parser.add_argument("--onnx", type=Path, nargs="+", required=True, help="versions")
    parser.add_argument("--limit", type=int, help="sentences")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    options = parser.parse_args(arguments)
    from training.data.splits import load_split
    from training.runs.run import load_run

    split, _ = load_split(load_run(options.run).config, "dev", limit=options.limit)
    wanted = by_saved_model(options.savedmodel, "translate", split.sources)
    looked = by_saved_model(options.savedmodel, "align", split.sources[:_WEIGHED])
    rows = {}
    for path in options.onnx:
        rows[str(path)] = row = compare(path, split, wanted, looked, options.seed)
        print(path, *(f"{name} {value:.6g}" for name, value in row.items()), sep="  ")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
