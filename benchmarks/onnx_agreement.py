"""Answers of ONNX exports beside a SavedModel's: python benchmarks/onnx_agreement.py

    python benchmarks/onnx_agreement.py --run RUN --savedmodel a/1 --onnx b/1 c/1
    python benchmarks/onnx_agreement.py --run CAPTCHAS --split test --savedmodel d/1 --onnx e/1

For a split of the run, of texts, images or histories: how many answers are the SavedModel's, by
how much numbers differ where they are (scores, or probabilities of an outcome), and attention
weights, of texts those of the first 200. With each measure of quality that the run has goes the
95 % interval of the difference, in percent, by a paired bootstrap over examples (Koehn 2004), of
histories over people. The
exports have the same beam width. Prints a line for each export; the last line is JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
_SAMPLES, _WEIGHED, _BATCH = 2000, 200, 32


class Answer(NamedTuple):
    """A model's answer to one example; its weights are without padding."""

    text: str
    number: float
    weights: np.ndarray


def ask_saved(path: Path, signature: str, columns: dict[str, list]) -> list[dict[str, Any]]:
    """Return a SavedModel's answers to each row of its inputs, by output."""
    import tensorflow as tf

    from serving.savedmodel.session import ModelSession

    found = []
    with ModelSession(path) as session:
        for start in range(0, len(next(iter(columns.values()))), _BATCH):
            batch = {name: rows[start : start + _BATCH] for name, rows in columns.items()}
            inputs = {name: tf.make_tensor_proto(rows) for name, rows in batch.items()}
            out = session.run(session.signatures[signature], inputs)
            count = len(next(iter(batch.values())))
            found += [{name: x[row] for name, x in out.items()} for row in range(count)]
    return found


class Texts:
    """Translators, and models that say a word's phones."""

    def __init__(self, run: Any, name: str, limit: int | None) -> None:
        from training.data.splits import load_split

        self.split, _ = load_split(run.config, name, limit=limit)
        self.sources = self.split.sources

    def by_saved_model(self, path: Path) -> list[Answer]:
        """Return the translations of a SavedModel."""
        columns = {"text": [text.encode() for text in self.sources]}
        some = {name: rows[:_WEIGHED] for name, rows in columns.items()}
        found = ask_saved(path, "translate", columns)
        looked = [each["attention_weights"] for each in ask_saved(path, "align", some)]
        looked += [np.zeros(0)] * (len(found) - len(looked))
        return [
            Answer(one["translation"].decode(), float(one["score"]), weights)
            for one, weights in zip(found, looked, strict=True)
        ]

    def by_onnx(self, path: Path) -> list[Answer]:
        """Return the translations of an ONNX export."""
        from serving.client.local import LocalTranslator

        model = LocalTranslator(path)
        found = model.translate(self.sources)
        looked = [one.attention_weights for one in model.align(self.sources[:_WEIGHED])]
        looked += [()] * (len(found) - len(looked))
        return [
            Answer(one.text, one.score, np.array(weights, "float32"))
            for one, weights in zip(found, looked, strict=True)
        ]


class Images(Texts):
    """Readers of images."""

    def __init__(self, run: Any, name: str, limit: int | None) -> None:
        self.split = run.source.load_split(run.config, run.config.data, name, limit=limit)
        self.sources = self.split.sources

    def by_saved_model(self, path: Path) -> list[Answer]:
        """Return the texts that a SavedModel reads."""
        found = ask_saved(path, "regions", {"image_bytes": self.sources})
        return [
            Answer(one["text"].decode(), float(one["score"]), one["attention_weights"])
            for one in found
        ]

    def by_onnx(self, path: Path) -> list[Answer]:
        """Return the texts that an ONNX export reads."""
        from serving.client.local import LocalReader

        found: list[Any] = LocalReader(path).regions(self.sources)
        return [
            Answer(one.text, one.score, np.array(one.attention_weights, "float32")) for one in found
        ]


class Histories:
    """Models of histories; they say no text."""

    def __init__(self, run: Any, name: str, limit: int | None) -> None:
        self.split = run.source.load_split(run.config, run.config.data, name, limit=limit)
        examples = range(len(self.split.labels))
        self.sources = [self.split.inputs(n, run.config.max_events) for n in examples]

    def by_saved_model(self, path: Path) -> list[Answer]:
        """How probable a SavedModel finds the outcomes."""
        longest = max(len(one["time"]) for one in self.sources)
        columns = {
            name: [one[name] + [np.nan] * (longest - len(one[name])) for one in self.sources]
            for name in self.sources[0]
        }
        return [
            Answer("", float(one["probability"]), one["attention_weights"])
            for one in ask_saved(path, "predict", columns)
        ]

    def by_onnx(self, path: Path) -> list[Answer]:
        """How probable an ONNX export finds the outcomes."""
        from serving.client.local import LocalPredictor

        found = LocalPredictor(path).outcome(self.sources)
        return [Answer("", one.probability, np.array(one.attention_weights)) for one in found]


KINDS: dict[str, Any] = {"text": Texts, "image": Images, "events": Histories}


def compare(found: list[Answer], wanted: list[Answer]) -> dict[str, float]:
    """How answers differ from those of the SavedModel."""
    pairs = [
        (one, other) for one, other in zip(found, wanted, strict=True) if one.text == other.text
    ]
    weights = [
        np.abs(one.weights - other.weights[tuple(map(slice, one.weights.shape))]).max(initial=0)
        for one, other in pairs
        if one.weights.size
    ]
    return {
        "examples": len(found),
        "same": len(pairs),
        "number_difference": max(
            (abs(one.number - other.number) for one, other in pairs), default=0
        ),
        "weight_difference": float(max(weights, default=0)),
    }


def quality(
    metric: str, references: list[list[str]], answers: list[list[Answer]], seed: int
) -> dict[str, Any]:
    """Each measure of an ONNX export and of the SavedModel, in percent, and their difference."""
    from training.score import metrics

    rates = {
        name: (count, lambda sums: 100 * metrics.ratio(sums))
        for name, count in metrics.RATES.get(metric, {}).items()
    }
    tokenize = metrics.bleu_tokenization(metric)
    bleu = functools.partial(metrics.bleu_statistics, tokenize=tokenize)
    rates = rates or {"bleu": (bleu, metrics.bleu_of)}
    rows = np.random.default_rng(seed).integers(0, len(references), (_SAMPLES, len(references)))
    found: dict[str, Any] = {}
    for name, (count, score) in rates.items():
        ours, theirs = (count([one.text for one in each], references) for each in answers)
        moved = [score(ours[row].sum(0)) - score(theirs[row].sum(0)) for row in rows]
        found[name] = round(score(ours.sum(0)), 2)
        found[f"{name}_of_saved_model"] = round(score(theirs.sum(0)), 2)
        found[f"{name}_difference"] = [
            round(float(x), 2) for x in np.quantile(moved, (0.025, 0.975))
        ]
    return found


def outcome_quality(data: Any, answers: list[list[Answer]], seed: int) -> dict[str, Any]:
    """The area under the curve and the accuracy of probabilities, as `quality` has measures."""
    from training.score.labels import auc, bootstrap_people, interval

    def accuracy(labels: np.ndarray, said: np.ndarray) -> float:
        return float(np.mean((said > 0.5) == labels))

    said = {
        name: np.array([one.number for one in each])
        for name, each in zip(("ours", "theirs"), answers, strict=True)
    }
    found: dict[str, Any] = {}
    for name, score in (("auc", auc), ("accuracy", accuracy)):
        drawn = bootstrap_people(data.people, data.labels, said, score, samples=_SAMPLES, seed=seed)
        found[name] = round(100 * score(data.labels, said["ours"]), 2)
        found[f"{name}_of_saved_model"] = round(100 * score(data.labels, said["theirs"]), 2)
        found[f"{name}_difference"] = [
            round(100 * end, 2) for end in interval(drawn["ours"] - drawn["theirs"])
        ]
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="whose split is answered")
    parser.add_argument("--savedmodel", type=Path, required=True, help="a version")
    parser.add_argument("--onnx", type=Path, nargs="+", required=True, help="versions")
    parser.add_argument("--split", default="dev", help="default: dev")
    parser.add_argument("--limit", type=int, help="examples")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    options = parser.parse_args(arguments)
    from training.runs.run import load_run

    run = load_run(options.run)
    kind = KINDS[run.config.source](run, options.split, options.limit)
    wanted = kind.by_saved_model(options.savedmodel)
    rows = {}
    for path in options.onnx:
        found = kind.by_onnx(path)
        row: dict[str, Any] = compare(found, wanted)
        if run.config.target == "text":
            references = kind.split.references
            row |= quality(run.config.metric, references, [found, wanted], options.seed)
        else:
            row |= outcome_quality(kind.split, [found, wanted], options.seed)
        rows[str(path)] = row
        print(path, *(f"{name} {value}" for name, value in row.items()), sep="  ")
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
