"""Spelling to sound beside peers: python benchmarks/pronunciation_peers.py --languages ice bul

Trains a preset, `g2p-low`, `g2p-medium` or `g2p-high` by the amount of data that a language of
SIGMORPHON 2021 has, and then peers on the same words: Phonetisaurus (peers/phonetisaurus.py), which
takes seconds, and yoyodyne's models (peers/yoyodyne.py), each for the processor time that the
preset took, or for `--minutes`. That time is of the whole training command with its start; it
leaves out what the transducer prepares, and saying the words. All say the words of dev, by which
all but Phonetisaurus have kept their best weights, too: by a beam search, or greedily where a model
of yoyodyne has none. A model in `--output` is not trained again. Run it on one core: `taskset -c 0
python ...`.
Prints the percentages of words and phones that are wrong, with the 95 % interval of the first
(Wilson); the last line is JSON, and table.csv in `--output` has the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from parts.quality_ours import run_module
from peers import phonetisaurus, yoyodyne
from peers.environments import installation, peer_python

from training.command.files import read_json, write_json
from training.data import corpus
from training.data.sigmorphon import LANGUAGES, corpus_name
from training.runs.files import RunFiles
from training.score import metrics
from training.studies.shared import write_table
from training.studies.sigmorphon import wilson_interval

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OMP_NUM_THREADS"] = "1"  # PyTorch's

OURS = "this library"
SUBTASKS = {language: subtask for subtask, names in LANGUAGES.items() for language in names}
Row = dict[str, Any]
# The project of each peer.
PEERS = {phonetisaurus.MODEL: phonetisaurus, **dict.fromkeys(yoyodyne.RECIPES, yoyodyne)}


def project(model: str) -> str:
    """Return the name of a peer's environment."""
    return PEERS[model].__name__.rpartition(".")[2]


def processor_minutes(work: Callable[[], object]) -> float:
    """Do something by commands; return the minutes of processor time that they took."""

    def taken() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = taken()
    work()
    return (taken() - before) / 60


def learn(case: str, language: str, options: argparse.Namespace, minutes: float | None) -> Row:
    """Train a case and let it say dev, unless that is done; return its row.

    Args:
        case: OURS, or a peer.
        language: of its words.
        options: of the command.
        minutes: of processor time, for a peer.

    Raises:
        RuntimeError: if a command fails, or the time is too short for an epoch.
    """
    folder = options.output / language / case.replace(", ", "-").replace(" ", "-")
    file = folder / "result.json"
    if not file.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if case == OURS:
            result = _learn_ours(language, folder, options)
        else:
            result = _learn_peer(case, language, folder, options, 60 * (minutes or 0))
        write_json(file, result)
    return _row(case, language, read_json(file))


def _learn_ours(language: str, folder: Path, options: argparse.Namespace) -> Row:
    files, said = RunFiles(folder / "run"), folder / "said.txt"
    settings = [f"--set={setting}" for setting in options.settings]
    preset = ["--preset", f"g2p-{SUBTASKS[language]}", "--data", corpus_name(language)]
    training = [*preset, *settings, "--set", f"seed={options.seed}", "--output", str(files.path)]
    minutes = processor_minutes(lambda: run_module(["training.train", *training], folder))
    scoring = ["--run", str(files.path), "--split", "dev", "--hypotheses", str(said)]
    scoring += ["--beam-width", str(options.beam_width)]
    run_module(["training.evaluate", *scoring], folder)
    said_words = said.read_text(encoding="utf-8").splitlines()
    return {"minutes": minutes, "epochs": len(read_json(files.history)), "said": said_words}


def _learn_peer(
    model: str, language: str, folder: Path, options: argparse.Namespace, seconds: float
) -> Row:
    data = options.output / language
    for split in ("train", "dev"):
        words = corpus.load(corpus_name(language), split)
        spelled = [unicodedata.normalize("NFD", word) for word in words.sources]  # as ours reads
        phones = [each[0] for each in words.references]
        yoyodyne.write_pairs(data / f"{split}.tsv", spelled, phones)
    peer = PEERS[model].Peer(options.pythons[project(model)], model, data, folder)
    peer.prepare()
    minutes = processor_minutes(lambda: peer.train(seconds, options.seed))
    said = peer.predict(options.beam_width)
    return {"minutes": minutes, "epochs": peer.epochs(), "said": said}


def _row(case: str, language: str, result: Row) -> Row:
    references = corpus.load(corpus_name(language), "dev").references
    scores = metrics.score("phones", result["said"], references)
    low, high = wilson_interval(scores["wer"], len(references))
    return {
        "language": language,
        "model": case,
        "words wrong": round(scores["wer"], 1),
        "from": round(low, 1),
        "to": round(high, 1),
        "phones wrong": round(scores["per"], 1),
        "minutes": round(result["minutes"], 2),
        "epochs": result["epochs"],
    }


def learn_all(options: argparse.Namespace) -> list[Row]:
    """Train all cases of all languages; print each row, and why one is left out."""
    rows: list[Row] = []
    for language in options.languages:
        minutes = options.minutes
        for case in options.cases:
            try:
                row = learn(case, language, options, minutes)
            except RuntimeError as error:
                print(f"{language}, {case}, left out: {error}", flush=True)
                continue
            minutes = minutes or (row["minutes"] if case == OURS else None)
            rows.append(row)
            print("  ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
            write_table(options.output / "table.csv", rows, printed=False)
    return rows


def keep_settings(options: argparse.Namespace) -> None:
    """Write what the results in the folder are of; refuse to mix them with others."""
    names = ("settings", "minutes", "beam_width", "seed")
    chosen = {name: getattr(options, name) for name in names}
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "settings.json"
    if file.is_file() and read_json(file) != chosen:
        raise SystemExit(f"{options.output} holds results of other settings: {file.read_text()}")
    write_json(file, chosen)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--languages", nargs="+", choices=SUBTASKS, default=["ice", "gre", "slv"], help="to learn")
    models = [OURS, *PEERS]
    add("--models", nargs="+", choices=models, default=models, help="to train; the first is ours")
    add("--minutes", type=float, help="for each of them; the preset's unless said")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="preset's")
    add("--output", type=Path, required=True, help="keep everything here")
    add("--beam-width", type=int, default=5, help="of the searches")
    add("--seed", type=int, default=1, help="of all that is drawn at random")
    options = parser.parse_args(arguments)
    options.output = options.output.absolute()
    timed = yoyodyne.RECIPES.keys() & set(options.models)
    if timed and not options.minutes and OURS not in options.models:
        parser.error(f"without {OURS!r} yoyodyne's models need --minutes")
    peers = [case for case in options.models if case != OURS]
    options.pythons = {name: peer_python(name) for name in map(project, peers)}
    for name, python in options.pythons.items():
        if not python:
            print(f"{name} skipped, to install it: {installation(name)}", flush=True)
    options.cases = [OURS] * (OURS in options.models)
    options.cases += [case for case in peers if options.pythons[project(case)]]
    keep_settings(options)
    print(json.dumps({"rows": learn_all(options)}))


if __name__ == "__main__":
    main()
