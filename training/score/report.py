"""The work of `training.evaluate`, after its options are read."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from training.command.errors import UserError
from training.command.files import write_json
from training.config.schema import Config
from training.data import corpus
from training.data.pair_files import Split
from training.data.splits import load_spec, load_split
from training.decode.settings import Search, check_precision
from training.decode.texts import say_cut
from training.metrics import METRICS, figures, score
from training.runs.run import Run, load_ensemble
from training.score.evaluation import evaluate
from training.score.labels import evaluate_labels


def report(options: argparse.Namespace) -> None:
    """Score runs; print the scores, and a JSON object as the last line."""
    check_precision(options.precision, options.runs)
    runs = load_ensemble(options.runs)
    if runs[0].config.target == "label":
        _evaluate_labels(options, runs)
        return
    split, read = _load_split(options, runs)
    settings = Search.of(options)
    if runs[0].config.source == "text":
        say_cut(runs[0], split.sources, settings)
    result = evaluate(
        runs,
        split,
        settings,
        batch_size=options.batch_size,
        lowercase=options.lowercase,
        hypotheses_file=options.hypotheses,
        errors_file=options.errors,
        bootstrap=options.bootstrap,
        by_length=options.by_length,
    )
    if options.baseline:
        config = runs[0].config
        train, _ = load_split(config, "train", limit=config.train_limit or None, seed=config.seed)
        similar = most_similar(train.pairs(), split.sources)
        scores = score(config.metric, similar, split.references, lowercase=options.lowercase)
        result |= {f"baseline_{key}": value for key, value in scores.items()}
    _finish(options, read, result)


def _load_split(options: argparse.Namespace, runs: Sequence[Run]) -> tuple[Split, dict[str, Any]]:
    """Read the examples to score by the runs' source, and say which they are."""
    config = runs[0].config
    if config.source != "text":
        _refuse(options, ("by_length", "baseline"), "source = text", config.source)
        return _load_others(options, runs[0])
    if "bleu" not in figures(config.metric):
        _refuse(options, ("by_length",), "metric = bleu", config.metric)
    return _load_sentences(options, config)


def _refuse(options: argparse.Namespace, names: Sequence[str], wanted: str, received: str) -> None:
    for name in names:
        if getattr(options, name):
            option = name.replace("_", "-")
            raise UserError(f"--{option} expected runs with {wanted}. Received: {received}")


def _load_others(options: argparse.Namespace, run: Run) -> tuple[Any, dict[str, Any]]:
    """Read images or histories."""
    spec = options.data or run.config.data
    if corpus.is_file(spec) and not options.data:
        raise UserError(f"{spec} has no splits: name the data with --data")
    _check_split(options)
    result = run.source.load_split(
        run.config, spec, options.split, limit=options.limit, seed=options.seed
    )
    return result, {"data": spec, "split": "all" if corpus.is_file(spec) else options.split}


def _check_split(options: argparse.Namespace) -> None:
    received = options.data
    if received and corpus.is_file(received) and options.split != "test":
        raise UserError(
            f"--split expected none: {received} is read whole. Received: {options.split}"
        )


def _load_sentences(options: argparse.Namespace, config: Config) -> tuple[Split, dict[str, Any]]:
    """Read sentences, written as those are that the run was trained on."""
    _check_split(options)
    drawn = {"limit": options.limit, "seed": options.seed}
    if options.data:
        split, read = load_spec(options.data, options.split, **drawn)
    else:
        split, read = load_split(config, options.split, **drawn)
    result: dict[str, Any] = dict(read)
    if split.unusable:
        result["unusable_lines"] = split.unusable
    return corpus.written_like(config.data, split), result


def _evaluate_labels(options: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Score runs that predict an outcome."""
    texts = ("by_length", "hypotheses", "errors", "lowercase", "replace_unknown")
    _refuse(options, texts, "target = text", "label")
    config, source = runs[0].config, runs[0].source
    split, read = _load_others(options, runs[0])
    train = source.load_training(config)[0] if options.baseline else None
    figure = options.output.with_suffix(".png") if options.output else None
    scores = evaluate_labels(runs, split, train=train, bootstrap=options.bootstrap, figure=figure)
    _finish(options, read, scores)


def _finish(options: argparse.Namespace, read: dict[str, Any], scores: dict[str, Any]) -> None:
    """Write and print the result."""
    result = {"runs": [str(path) for path in options.runs], **read, **scores}
    if options.output:
        write_json(options.output, result)
    for key, value in result.items():
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        print(f"{key:>24}  {text:8}{METRICS[key].meaning if key in METRICS else ''}".rstrip())
    print(json.dumps(result))


def most_similar(pairs: Sequence[tuple[str, str]], sources: Sequence[str]) -> list[str]:
    """Translate each source by the target of the training pair whose source shares most words.

    Similarity is the Dice coefficient of the sets of words and of neighbouring words; of equally
    similar pairs the first is taken.
    """
    features: dict[Hashable, int] = {}
    features_of_pairs = [_features(source) for source, _ in pairs]
    for words in features_of_pairs:
        for word in words:
            features.setdefault(word, len(features))
    rows_of: list[list[int]] = [[] for _ in features]
    for row, words in enumerate(features_of_pairs):
        for word in words:
            rows_of[features[word]].append(row)
    rows_with = [np.array(rows) for rows in rows_of]
    sizes = np.array([len(words) for words in features_of_pairs])
    result = []
    for source in sources:
        words = _features(source)
        shared = np.zeros(len(pairs))
        for word in words & features.keys():
            shared[rows_with[features[word]]] += 1
        result.append(pairs[int(np.argmax(2 * shared / (sizes + len(words))))][1])
    return result


def _features(text: str) -> set[Hashable]:
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    return {*words, *pairwise(words)}
