"""Runs scored on a split: translations against references, links against gold links."""

from __future__ import annotations

import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from training.command.files import write_text
from training.command.progress import progress
from training.data.pair_files import Split
from training.decode.settings import Search
from training.decode.texts import Translation, make_attender, make_nbest
from training.metrics import exact_matches, figures, lowered, percent, score, signatures
from training.runs.run import Run
from training.score import links
from training.score.intervals import bootstrap_interval, by_length, ratio
from training.score.links import Reading
from training.score.pointing import pointing


def evaluate(
    runs: Sequence[Run],
    split: Split,
    settings: Search | None = None,
    *,
    batch_size: int | None = None,
    lowercase: bool = False,
    hypotheses_file: Path | None = None,
    errors_file: Path | None = None,
    bootstrap: bool = False,
    by_length: bool = False,
) -> dict:
    """Translate a split and score it.

    Args:
        runs: a run, or several of the same data that are used as an ensemble.
        split: sources with their references, and gold links where there are.
        settings: how they search; `Search()` by default.
        batch_size: sentences translated together, see `make_nbest`.
        lowercase: whether hypotheses and references are lower-cased before they are compared.
        hypotheses_file: where the translations are written, one a line.
        errors_file: where a table of them is written, the wrong ones first.
        bootstrap: whether to add 95 % confidence intervals of BLEU, the rates and AER.
        by_length: whether to add BLEU by number of source words.

    Returns:
        Figures and signatures of `training.metrics`; `pointing`, in percent, where boxes are
        known; `aer` (0 to 1) with `aer_method`, and `aer_diagonal` of a plain diagonal, where there
        are gold links and the runs attend; `sentences`, `seconds`, `sentences_per_second`,
        `beam_width`.
    """
    config = runs[0].config
    settings = settings or Search()
    nbest = make_nbest(runs, settings, batch_size)
    started = time.perf_counter()
    with progress(len(split.sources), "sentences") as advance:
        best = [translations[0] for translations in nbest(split.sources, advance)]
    seconds = time.perf_counter() - started
    hypotheses = [translation.text for translation in best]
    if errors_file is not None:
        write_text(errors_file, errors(best, split, lowercase))
    if hypotheses_file is not None:
        write_text(hypotheses_file, "\n".join(hypotheses) + "\n")

    result = _score(config.metric, hypotheses, split, lowercase, bootstrap, by_length)
    if all(run.config.attention != "none" for run in runs):
        if split.sure is not None:
            result |= aer(runs, split, Reading(), bootstrap)
        if split.boxes is not None:
            result |= _pointing(runs, split, bootstrap)
    return {
        **result,
        "beam_width": settings.beam_width,
        "sentences": len(split.sources),
        "seconds": round(seconds, 1),
        "sentences_per_second": round(len(split.sources) / seconds, 1),
    }


def errors(translations: Sequence[Translation], split: Split, lowercase: bool = False) -> str:
    """Return a table of translations, tabs between its columns.

    Wrong ones come first, of those the most probable first; then right ones, the least probable
    first. Spaces decide nothing, and with `lowercase` neither does case. An image that is no file
    is called by its place in the split.
    """
    texts: Any = [translation.text for translation in translations], split.references
    matches = exact_matches(*(lowered(*texts) if lowercase else texts))
    rows = []
    for number, ((right, _), best) in enumerate(zip(matches, translations, strict=True)):
        source, chance = split.sources[number], best.probability
        name = f"example {number}" if isinstance(source, bytes) else str(source)
        cells = [name, " ; ".join(split.references[number]), best.text, f"{chance:.4f}"]
        rows.append(((right, chance if right else -chance), cells))
    rows.sort(key=itemgetter(0))
    table = [["source", "reference", "output", "probability"], *(cells for _, cells in rows)]
    return "".join("\t".join(" ".join(cell.split()) for cell in cells) + "\n" for cells in table)


def _score(
    metric: str,
    hypotheses: Sequence[str],
    split: Split,
    lowercase: bool,
    bootstrap: bool,
    lengths: bool,
) -> dict[str, Any]:
    """Score hypotheses of a split: the part of `evaluate` that needs no model."""
    texts: Any = hypotheses, split.references
    result: dict[str, Any] = {
        **score(metric, *texts, lowercase=lowercase),
        **signatures(metric, *texts, lowercase=lowercase),
    }
    texts = lowered(*texts) if lowercase else texts
    metrics_of = figures(metric)
    for name, each in metrics_of.items():
        if bootstrap and each.statistics and each.value:
            result[f"{name}_interval"] = bootstrap_interval(each.statistics(*texts), each.value)
    if lengths:
        words = [len(source.split()) for source in split.sources]
        rows = by_length(metrics_of["bleu"], texts[0], texts[1], words, bootstrap=bootstrap)
        result["bleu_by_length"] = rows
    return result


def _pointing(runs: Sequence[Run], split: Split, bootstrap: bool) -> dict[str, Any]:
    """Return how often the weights point into the boxes of a split, in percent."""
    hits = pointing(runs, split)
    result: dict[str, Any] = {"pointing": percent(hits.sum(axis=0))}
    if bootstrap:
        result["pointing_interval"] = bootstrap_interval(hits, percent)
    return result


def aer(runs: Sequence[Run], split: Split, reading: Reading, bootstrap: bool = False) -> dict:
    """Score the links read from forced decoding: `aer`, `aer_method`, `aer_diagonal`."""
    gold = split.gold()
    rows = [links.read(weights, reading) for weights in links.attend(make_attender(runs), split)]
    errors = links.alignment_errors(rows, *gold)
    result = {
        "aer": ratio(errors.sum(axis=0)),
        "aer_method": reading.describe(),
        "aer_diagonal": links.alignment_error_rate(links.diagonal(split), *gold),
    }
    if bootstrap:
        result["aer_interval"] = bootstrap_interval(errors, ratio)
    return result
