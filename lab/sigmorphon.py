"""Spelling to sound in the languages of SIGMORPHON 2021: one model, and ensembles.

Each language of a subtask is learned with several seeds. A row for each has the percentage of dev
words that are wrong, beside that of the contest's baseline, an ensemble of ten: the mean of the
seeds' models, what they say together, the 95 % interval of that, and the minutes of processor time
that a model took. A baseline outside the interval is more than chance among so few words. The last
row is the mean over the languages.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import shared
from training.command.errors import UserError
from training.command.files import read_json, write_json
from training.command.options import add_options as add_common
from training.command.options import positive_int
from training.config.schema import Config, load_preset, override
from training.data.read import texts as corpus
from training.data.read.named._download import LANGUAGES
from training.decode.settings import SearchSettings
from training.decode.texts import make_translator
from training.metrics import score
from training.runs.run import Run, load_run

BASELINE = {  # words wrong on dev, in percent
    **{"eng_us": 45.13},
    **{"arm_e": 4.5, "bul": 8.3, "dut": 10.8, "fre": 7.4, "geo": 0.0},
    **{"hbs_latn": 34.7, "hun": 1.5, "jpn_hira": 6.2, "kor": 18.4, "vie_hanoi": 1.3},
    **{"ady": 22.0, "gre": 5.0, "ice": 11.0, "ita": 22.0, "khm": 34.0},
    **{"lav": 41.0, "mlt_latn": 20.0, "rum": 10.0, "slv": 43.0, "wel_sw": 16.0},
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    add = parser.add_argument
    add("--subtask", choices=LANGUAGES, default="medium", help="the amount of data")
    add("--languages", nargs="+", metavar="NAME", help="as the files name them; default: all")
    add("--seeds", type=positive_int, default=3, metavar="N", help="trainings of each")
    add("--preset", metavar="NAME", help="preset; default: g2p- and the subtask")
    shared.add_split(parser)
    add_common(parser, "--set", "--beam-width")


def run(options: argparse.Namespace) -> dict:
    """Run the study; return the values that its last line prints."""
    languages = options.languages or LANGUAGES[options.subtask]
    for language in languages:
        if language not in LANGUAGES[options.subtask]:
            expected = ", ".join(LANGUAGES[options.subtask])
            raise UserError(f"--languages expected some of {expected}. Received: {language}")
    base = override(load_preset(options.preset or f"g2p-{options.subtask}"), options.settings)
    jobs = [
        (language, _configs(base, language, options.seeds), options.output, options.beam_width)
        for language in languages
    ]
    rows = []
    for job in jobs:
        row = learn(*job)
        rows.append(row)
        print(_said(row), flush=True)
    rows.append(mean_row(rows))
    shared.write_table(options.output / "sigmorphon.csv", rows)
    return {"subtask": options.subtask, "seeds": options.seeds, "languages": rows}


def mean_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean over the languages."""
    numbers = [name for name in rows[0] if name != "language"]
    means = {name: sum(row[name] for row in rows) / len(rows) for name in numbers}
    half = math.hypot(*((row["to"] - row["from"]) / 2 for row in rows)) / len(rows)
    interval = {"from": means["ensemble"] - half, "to": means["ensemble"] + half}
    return {"language": "mean", **means, **interval}


def learn(language: str, configs: Sequence[Config], output: Path, width: int) -> dict[str, Any]:
    """Train what is missing of a language's models, one a configuration; return its row."""
    names = [f"{language}-{config.seed}" for config in configs]
    paths = [output / "runs" / name for name in names]
    minutes = [
        _train(name, config, path, output / "time" / f"{name}.json")
        for name, config, path in zip(names, configs, paths, strict=True)
    ]
    runs = [load_run(path) for path in paths]
    wrong = [
        _word_error_rate([found], width, output / "said" / f"{name}.json")
        for name, found in zip(names, runs, strict=True)
    ]
    together = wrong[0]
    if len(runs) > 1:
        together = _word_error_rate(runs, width, output / "said" / f"{language}-ensemble.json")
    interval = wilson_interval(together, len(corpus.load(configs[0].data, "dev").sources))
    return {
        "language": language,
        "baseline": BASELINE[language],
        "mean": sum(wrong) / len(wrong),
        "lowest": min(wrong),
        "highest": max(wrong),
        "ensemble": together,
        "from": interval[0],
        "to": interval[1],
        "minutes": sum(minutes) / len(minutes),
    }


def wilson_interval(percent: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a percentage of so many words (Wilson 1927, eq. 6)."""
    share, z2 = percent / 100, 1.959964**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2))) / (1 + z2 / count)
    return 100 * (middle - half), 100 * (middle + half)


def _configs(base: Config, language: str, seeds: int) -> list[Config]:
    data = f"data=sigmorphon2021-{language[:3]}"
    return [override(base, [data, f"seed={seed}"]) for seed in range(1, seeds + 1)]


def _train(name: str, config: Config, path: Path, file: Path) -> float:
    """Train a model unless it is there; return its minutes of processor time."""
    spent = read_json(file)["minutes"] if file.is_file() else 0.0
    started = time.process_time()
    try:
        shared.train_missing(name, config, path)
    finally:
        spent += (time.process_time() - started) / 60
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"minutes": spent})
    return float(spent)


def _word_error_rate(runs: Sequence[Run], width: int, file: Path) -> float:
    """Return the percentage of dev words that runs get wrong together; what they say is kept."""
    dev = corpus.load(runs[0].config.data, "dev")
    others = [hashlib.sha1(each.files.best.read_bytes()).hexdigest() for each in runs[1:]]

    def say() -> list[str]:
        return make_translator(runs, SearchSettings(beam_width=width))(dev.sources)

    said = shared.kept(file, shared.key_of(runs[0], width, others, dev.sources), say)
    return float(score("symbols", said, dev.references)["wer"])


def _said(row: dict[str, Any]) -> str:
    return (
        f"{row['language']}: one model {row['mean']:.1f} ({row['lowest']:.1f} to "
        f"{row['highest']:.1f}), together {row['ensemble']:.1f} "
        f"({row['from']:.1f} to {row['to']:.1f} by chance), baseline {row['baseline']:.1f}; "
        f"{row['minutes']:.1f} minutes a model"
    )
