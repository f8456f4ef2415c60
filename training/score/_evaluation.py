"""Scores runs on a split: translations, word links and attended image regions."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import numpy as np

from training import metrics
from training._metric_choice import misfit
from training.command.errors import UserError
from training.command.files import write_json, write_text
from training.command.progress import print_note, progress
from training.data.read._sentences import Split
from training.data.read._specs import Spec
from training.data.read.texts import Texts, load_split
from training.data.rules import ALPHABETS
from training.data.tokens._vocabularies import check_texts
from training.decode.settings import SearchSettings
from training.decode.texts import Translation, make_attender, make_nbest, say_cut
from training.metrics import METRICS, percent, ratio
from training.runs.run import Run, load_ensemble
from training.score import _links as links
from training.score import _overlap as overlap
from training.score._labels import evaluate_labels
from training.sources.events.source import EventSource

FEW_TO_RATE = 1000  # with fewer examples, a rate comes with its interval


def share_of_weights_in_box(runs: Sequence[Run], split: Split) -> np.ndarray:
    """Return the number of hits and the number of characters of each image: `(N, 2)`.

    A hit is a character whose image region of largest attention weight lies in the character's box.
    A region lies in a box if its centre does. Each character is a token. Training never uses boxes.
    """
    texts = [references[0] for references in split.references]
    rows = []
    attended = make_attender(runs)(split.sources, texts)
    for each, boxes in zip(attended, split.boxes, strict=True):
        length, height, width = each.weights.shape
        best = each.weights.reshape(length, -1).argmax(axis=1)
        x, y = (best % width + 0.5) / width, (best // width + 0.5) / height
        left, top, right, bottom = np.array(boxes).T
        inside = (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
        rows.append((int(inside.sum()), length))
    return np.array(rows)


def evaluate(
    runs: Sequence[Run],
    split: Split,
    settings: SearchSettings | None = None,
    *,
    batch_size: int | None = None,
    lowercase: bool = False,
    hypotheses_file: Path | None = None,
    errors_file: Path | None = None,
    bootstrap: bool = False,
) -> dict:
    """Translate a split and score the translations.

    Args:
        runs: the runs to score; several runs of the same data are an ensemble.
        split: the examples, with references.
        settings: the settings of the search; by default `SearchSettings()`.
        batch_size: see `training.decode.texts.make_nbest`.
        lowercase: whether to score texts in lower case.
        hypotheses_file: gets the translations, one per line.
        errors_file: gets a table of the translations, wrong ones first.
        bootstrap: whether to add 95 % confidence intervals of BLEU, the rates and AER. With the
            metric "symbols" and fewer than FEW_TO_RATE examples they are always added.

    Returns:
        Figures and signatures of `training.metrics`; `sentences`, `seconds`,
        `sentences_per_second`, `beam_width`. If the runs attend and the split has boxes:
        `pointing`, in percent. If the runs attend and the split has gold links: `aer` (0 to 1),
        `aer_method`, and `aer_diagonal`, the AER of a plain diagonal.
    """
    config = runs[0].config
    settings = settings or SearchSettings()
    nbest = make_nbest(runs, settings, batch_size)
    started = time.perf_counter()
    with progress(len(split.sources), "sentences") as advance:
        best = [translations[0] for translations in nbest(split.sources, advance)]
    seconds = time.perf_counter() - started
    hypotheses = [translation.text for translation in best]
    if errors_file is not None:
        table, wrong = errors(best, split, lowercase)
        write_text(errors_file, table)
        print(_about_errors(errors_file, wrong, len(best), config.label_smoothing))
    if hypotheses_file is not None:
        write_text(hypotheses_file, "\n".join(hypotheses) + "\n")

    bootstrap |= config.metric == "symbols" and len(split.sources) < FEW_TO_RATE
    texts: Any = hypotheses, split.references
    texts = metrics.lowered(*texts) if lowercase else texts
    result: dict[str, Any] = {
        **metrics.score(config.metric, *texts),
        **metrics.signatures(config.metric, *texts, lowercase=lowercase),
    }
    rows: dict[str, tuple[Any, Any]] = {
        name: (each.statistics(*texts), each.value)
        for name, each in metrics.figures(config.metric).items()
        if bootstrap and each.statistics
    }
    if all(run.config.attention != "none" for run in runs):
        if split.sure:
            gold, weights = (split.sure, split.possible), links.attend(make_attender(runs), split)
            predicted = [links.read(sentence) for sentence in weights]
            rows["aer"] = links.alignment_errors(predicted, *gold), ratio
            diagonal = links.alignment_errors(links.diagonal(split), *gold)
            result |= {"aer_method": links.METHOD, "aer_diagonal": ratio(diagonal.sum(axis=0))}
        if split.boxes:
            rows["pointing"] = share_of_weights_in_box(runs, split), percent
    for name, (statistics, value) in rows.items():
        result.setdefault(name, value(np.sum(statistics, axis=0)))
        if bootstrap:
            result[f"{name}_interval"] = metrics.bootstrap_interval(statistics, value)
    return {
        **result,
        "beam_width": settings.beam_width,
        "sentences": len(split.sources),
        "seconds": round(seconds, 1),
        "sentences_per_second": round(len(split.sources) / seconds, 1),
    }


def errors(
    translations: Sequence[Translation], split: Split, lowercase: bool = False
) -> tuple[str, int]:
    """Return a table of translations, separated by tabs, and the number of wrong translations.

    Wrong translations come first, the most probable first. Right translations follow, the least
    probable first. Spaces are ignored, and with `lowercase` so is case. An image that is not a file
    is named by its position in the split.
    """
    texts: Any = [translation.text for translation in translations], split.references
    matches = metrics.exact_matches(*(metrics.lowered(*texts) if lowercase else texts))
    rows = []
    for number, ((right, _), best) in enumerate(zip(matches, translations, strict=True)):
        source, chance = split.sources[number], best.probability
        name = f"example {number}" if isinstance(source, bytes) else str(source)
        cells = [name, " ; ".join(split.references[number]), best.text, f"{chance:.4f}"]
        rows.append(((right, chance if right else -chance), cells))
    rows.sort(key=itemgetter(0))
    table = [["source", "reference", "output", "probability"], *(cells for _, cells in rows)]
    lines = ("\t".join(" ".join(cell.split()) for cell in cells) + "\n" for cells in table)
    return "".join(lines), sum(not right for right, _ in matches)


def _about_errors(file: Path, wrong: int, count: int, smoothing: float) -> str:
    """Return the message about a table of errors and about the meaning of its probabilities."""
    if not wrong:
        return f"{file}: no errors, all {count:,} answers are right"
    sure = f"; label smoothing keeps a sure one near {1 - smoothing:g}" if smoothing else ""
    return (
        f"{file}: {wrong:,} of {count:,} answers are wrong, the surest first. The "
        f"probability of an answer is that of its least probable token{sure}."
    )


def report(options: argparse.Namespace) -> None:
    """Score runs by command-line options; print the scores, and a JSON object as last line."""
    runs = load_ensemble(options.runs)
    run, config = runs[0], runs[0].config
    split, read = _load_split(options, run)
    if options.data:
        warnings = (overlap.warning(each, options.data, split) for each in runs)
        if found := next(filter(None, warnings), None):
            held_out = config.source == "text" and Spec.of(options.data).absolute() == config.data
            hint = ". Leave out --data to score the held-out sentences" if held_out else ""
            print_note(f"{found}{hint}")
    if config.target == "label":
        cast(EventSource, run.source).tell_cut(split)
        scores = evaluate_labels(runs, split, bootstrap=options.bootstrap)
    else:
        settings = SearchSettings.of(options)
        if config.source == "text":
            say_cut(run, split.sources, settings)
        if options.data and not (config.copy or settings.replaces_unknown):
            # `say_cut` has named unknown letters
            if config.source == "text" and run.source_tokenizer.kind not in ALPHABETS:
                check_texts(options.data, split.sources, run.source_tokenizer, side="source")
            references = [text for texts in split.references for text in texts]
            check_texts(options.data, references, run.target_tokenizer)
        if reason := misfit(config.metric, split.references):
            other = ". chrF fits any script" if "chrf" in metrics.figures(config.metric) else ""
            wrong = f"the run's metric, {config.metric}, does not fit the references"
            print_note(f"Warning: {wrong}: {reason}{other}")
        scores = evaluate(
            runs,
            split,
            settings,
            batch_size=options.batch_size,
            lowercase=options.lowercase,
            hypotheses_file=options.hypotheses,
            errors_file=options.errors,
            bootstrap=options.bootstrap,
        )
    result = {"runs": [str(path) for path in options.runs], **read, **scores}
    if options.output:
        write_json(options.output, result)
    for key, value in result.items():
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        if isinstance(value, tuple):
            text = "{:.4g} to {:.4g}".format(*value)
        print(f"{key:>24}  {text:8}{METRICS[key].meaning if key in METRICS else ''}".rstrip())
    print(json.dumps(result))


def _load_split(options: argparse.Namespace, run: Run) -> tuple[Any, dict[str, Any]]:
    """Return the examples to score, as the run's source reads them, and facts about the data."""
    spec = options.data or run.config.data
    is_file = Spec.of(spec).is_file
    if run.config.source == "text" and not options.data:
        split, read = load_split(Texts.of(run.config), options.split, options.limit)
    elif is_file and not options.data:
        raise UserError(f"{spec} has no splits: name the data with --data")
    else:
        split = run.source.load_split(run.config, spec, options.split, options.limit)
        read = {"data": spec, "split": "all" if is_file else options.split}
    unusable = getattr(split, "unusable", 0)
    return split, {**read, "unusable_lines": unusable} if unusable else read
