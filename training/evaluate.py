"""Score one run, or an ensemble of several: python -m training.evaluate --run DIR."""

from __future__ import annotations

import training.quiet  # noqa: F401

import argparse
import dataclasses
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import keras

from training import corpus, links, metrics
from training.baselines import most_similar
from training.checkpoints import write_text
from training.cli import main_guard, positive_int
from training.errors import UserError
from training.inference import PRECISIONS, check_precision, make_translator
from training.links import Reading
from training.run import Run, load_ensemble


def evaluate(
    runs: Sequence[Run],
    split: corpus.Split,
    *,
    beam_width: int = 5,
    length_penalty: float = 1.0,
    batch_size: int = 64,
    precision: str = "float32",
    lowercase: bool = False,
    hypotheses_file: Path | None = None,
    bootstrap: bool = False,
    by_length: bool = False,
    reading: Reading | None = None,
) -> dict:
    """Translate a split and score it.

    Args:
        runs: a run, or several of the same data that are used as an ensemble.
        split: sources with their references, and gold links where there are.
        beam_width: hypotheses kept for each sentence; 1 is greedy search.
        length_penalty: see `keras_attention.beam_search`.
        batch_size: sentences translated together.
        precision: of the products, "float32" or, for one run alone, "bfloat16".
        lowercase: whether hypotheses and references are lower-cased before they are compared.
        hypotheses_file: where the translations are written, one a line.
        bootstrap: whether to add 95 % confidence intervals of BLEU, PER, WER and AER.
        by_length: whether to add BLEU by number of source words.
        reading: how links are read from the weights, `Reading()` by default.

    Returns:
        `bleu`, `bleu_signature`, `chrf`, `chrf_signature`, or `per` and `wer` in percent; `aer`
        (0 to 1) with `aer_method` and `aer_diagonal`, that of a plain diagonal, where there are
        gold links and the runs attend; `sentences`, `seconds`, `sentences_per_second`,
        `beam_width`.
    """
    config = runs[0].config
    translate = make_translator(
        runs,
        beam_width=beam_width,
        length_penalty=length_penalty,
        batch_size=batch_size,
        precision=precision,
    )
    progress = keras.utils.Progbar(len(split.sources), unit_name="sentence")
    verbose = sys.stderr.isatty()
    started = time.perf_counter()
    hypotheses = translate(split.sources, progress.add if verbose else None)
    seconds = time.perf_counter() - started
    if hypotheses_file is not None:
        hypotheses_file.write_text("\n".join(hypotheses) + "\n", encoding="utf-8")

    result = metrics.score(config.metric, hypotheses, split.references, lowercase=lowercase)
    if config.metric != "phones":
        options = {"lowercase": lowercase, "tokenize": metrics.bleu_tokenization(config.metric)}
        if bootstrap:
            statistics = metrics.bleu_statistics(hypotheses, split.references, **options)
            result["bleu_interval"] = metrics.bootstrap_interval(statistics, metrics.bleu_of)
        if by_length:
            lengths = [len(source.split()) for source in split.sources]
            result["bleu_by_length"] = metrics.by_length(
                hypotheses, split.references, lengths, bootstrap=bootstrap, **options
            )
    elif bootstrap:
        for key, errors in (("per", metrics.phone_errors), ("wer", metrics.word_errors)):
            statistics = errors(hypotheses, split.references) * (100, 1)  # percent
            result[f"{key}_interval"] = metrics.bootstrap_interval(statistics, metrics.ratio)
    if split.sure is not None and all(run.config.attention != "none" for run in runs):
        result |= aer(runs, split, reading or Reading(), bootstrap)
    return {
        **result,
        "beam_width": beam_width,
        "sentences": len(split.sources),
        "seconds": round(seconds, 1),
        "sentences_per_second": round(len(split.sources) / seconds, 1),
    }


def aer(
    runs: Sequence[Run], split: corpus.Split, reading: Reading, bootstrap: bool = False
) -> dict:
    """Score the links read from forced decoding: `aer`, `aer_method`, `aer_diagonal`."""
    gold = split.sure, split.possible
    errors = metrics.alignment_errors(links.read(links.attend(runs, split), reading), *gold)
    result = {
        "aer": metrics.ratio(errors.sum(axis=0)),
        "aer_method": reading.describe(),
        "aer_diagonal": metrics.alignment_error_rate(links.diagonal(split), *gold),
    }
    if bootstrap:
        result["aer_interval"] = metrics.bootstrap_interval(errors, metrics.ratio)
    return result


def with_gold_links(split: corpus.Split, path: Path) -> corpus.Split:
    """Add gold links between the words (what stands between spaces) of sources and references.

    Args:
        split: the sentences.
        path: a file with one line a sentence: `i-j` for a sure link of source word i and target
            word j, `ipj` for a possible one, counted from 0.

    Raises:
        UserError: if the file is not like that, has another number of lines, or links words that
            are not there.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) != len(split.sources):
        raise UserError(f"{path} expected {len(split.sources)} lines. Received: {len(lines)}")
    source_words = [source.split() for source in split.sources]
    target_words = [references[0].split() for references in split.references]
    sure, possible = [], []
    for number, line in enumerate(lines, 1):
        sizes = len(source_words[number - 1]), len(target_words[number - 1])
        found = {"-": set(), "p": set()}
        for link in line.split():
            match = re.fullmatch(r"(\d+)([-p])(\d+)", link)
            if not match:
                raise UserError(f"{path}, line {number}: expected i-j or ipj. Received: {link}")
            pair = int(match[1]), int(match[3])
            if pair[0] >= sizes[0] or pair[1] >= sizes[1]:
                raise UserError(
                    f"{path}, line {number}: expected links between {sizes[0]} source and "
                    f"{sizes[1]} target words. Received: {link}"
                )
            found[match[2]].add(pair)
        sure.append(frozenset(found["-"]))
        possible.append(frozenset(found["-"] | found["p"]))
    return dataclasses.replace(
        split,
        source_words=source_words,
        target_words=target_words,
        sure=sure,
        possible=possible,
    )


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide how links are read from attention weights."""
    default = Reading()
    group = parser.add_argument_group("how links are read from the attention weights, for the AER")
    group.add_argument(
        "--links",
        choices=metrics.LINK_METHODS,
        default=default.method,
        help="a target word's links: all source words of enough weight, or the one with most; "
        f"default: {default.method}",
    )
    group.add_argument(
        "--link-threshold",
        type=float,
        default=default.threshold,
        metavar="X",
        help=f"enough weight; default: {default.threshold}",
    )
    group.add_argument(
        "--link-shift",
        type=int,
        default=default.shift,
        metavar="N",
        help="the weights of step i + N belong to target token i: 1 or -1 for a model whose "
        "attention is one step off; default: 0",
    )
    group.add_argument(
        "--symmetrize",
        choices=metrics.SYMMETRIZATIONS,
        default=default.symmetrize,
        help="what is done with the links read from source to target words; default: none",
    )


def _load_split(options: argparse.Namespace, spec: str) -> corpus.Split:
    """Read what is to be scored; gold links belong to the lines as they stand in the files."""
    limit = options.limit
    if not options.alignments and not options.max_words:
        return corpus.load(spec, options.split, limit=limit, seed=options.seed)
    generated = spec.startswith("phrasebook-")  # as many sentences as are asked for
    split = corpus.load(
        spec,
        options.split,
        limit=limit if generated else None,
        seed=options.seed,
        merge=not options.alignments,
    )
    if options.alignments:
        split = with_gold_links(split, options.alignments)
    if options.max_words:
        split = links.at_most(split, options.max_words)
        if not split.sources:
            raise UserError(f"{spec} has no pair of at most {options.max_words} words a side")
    return corpus.sample(split, limit, options.seed)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate",
        description="Score a run, or an ensemble of several. The last line is a JSON object.",
    )
    parser.add_argument(
        "--run", dest="runs", action="append", required=True, metavar="DIR", type=Path
    )
    parser.add_argument("--data", metavar="SPEC", help="default: what the run was trained on")
    parser.add_argument("--split", default="test", help="default: test")
    parser.add_argument("--beam-width", type=positive_int, default=5, metavar="N")
    parser.add_argument("--length-penalty", type=float, default=1.0, metavar="X")
    parser.add_argument("--batch-size", type=positive_int, default=64, metavar="N")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="of the products"
    )
    parser.add_argument("--limit", type=positive_int, metavar="N", help="sentences, at random")
    parser.add_argument("--seed", type=int, default=0, help="of --limit")
    parser.add_argument("--lowercase", action="store_true", help="compare in lower case")
    parser.add_argument(
        "--alignments",
        type=Path,
        metavar="FILE",
        help="gold links for the AER, a line for each of the data's: `i-j` (sure) or `ipj` "
        "(possible), source word and target word, from 0",
    )
    parser.add_argument(
        "--max-words", type=positive_int, metavar="N", help="only pairs of at most N words a side"
    )
    add_reading_arguments(parser)
    parser.add_argument("--hypotheses", type=Path, metavar="FILE", help="write the translations")
    parser.add_argument("--bootstrap", action="store_true", help="95 %% confidence intervals")
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="score the translation of the most similar training sentence as well",
    )
    parser.add_argument("--by-length", action="store_true", help="BLEU by source length")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON here too")
    options = parser.parse_args(arguments)
    check_precision(options.precision, options.runs)
    runs = load_ensemble(options.runs)
    spec = options.data or runs[0].config.data
    if ":" in spec and not options.data:
        raise UserError(f"{spec} has no splits: say what to score with --data")
    split = _load_split(options, spec)
    split = corpus.written_like(runs[0].config.data, split)
    result = evaluate(
        runs,
        split,
        beam_width=options.beam_width,
        length_penalty=options.length_penalty,
        batch_size=options.batch_size,
        precision=options.precision,
        lowercase=options.lowercase,
        hypotheses_file=options.hypotheses,
        bootstrap=options.bootstrap,
        by_length=options.by_length,
        reading=Reading(
            options.links, options.link_threshold, options.link_shift, options.symmetrize
        ),
    )
    result = {
        "runs": [str(path) for path in options.runs],
        "data": spec,
        "split": options.split,
        **({"max_words": options.max_words} if options.max_words else {}),
        **result,
    }
    if options.baseline:
        config = runs[0].config
        train, _ = corpus.load_training(config.data, config.train_limit, config.seed)
        similar = most_similar(train.pairs(), split.sources)
        scores = metrics.score(
            config.metric, similar, split.references, lowercase=options.lowercase
        )
        result |= {f"baseline_{key}": value for key, value in scores.items()}
    if options.output:
        write_text(options.output, json.dumps(result, indent=1) + "\n")
    for key, value in result.items():
        print(f"{key:>24}  {value:.4g}" if isinstance(value, float) else f"{key:>24}  {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main_guard(main)
