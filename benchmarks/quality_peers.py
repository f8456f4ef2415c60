"""Quality beside peers: python benchmarks/quality_peers.py --seconds N --output DIR

Trains encoder-decoders of other projects on the same pairs, cut into the same subwords by the
preset's own tokenizers, for the same wall time, one after another or on cores of their own: the
preset itself by `training.train`, stock Keras layers, and peers, each in its own environment
`$KERAS_ATTENTION_PEERS/NAME`, by their own trainers and with their own recipes
(peers/quality_*.py). Widths are such that all have about as many weights as the preset. All
translate dev by a beam search; the subwords are put together by the preset's tokenizer and scored
as `training.evaluate` scores, against all references, with paired bootstrap (Koehn 2004) against
the first case. A case whose result is in DIR is not trained again.
Prints a table; the last line is JSON, and DIR/table.csv has the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue

from parts.quality import Task, read_lines
from peers.environments import installation, peer_environment, peer_python

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"  # that of the presets' figures

OURS, STOCK = "keras-attention", "stock Keras layers"
# "RNN@2e-3" is an RNN at a rate of 2e-3, the Tatoeba presets', in place of its recipe's.
MODELS = {"opennmt-tf": ("RNN", "RNN@2e-3", "Transformer")}
CASES = [OURS, STOCK, *(f"{name} {model}" for name, models in MODELS.items() for model in models)]


def folder_of(case: str, options: argparse.Namespace) -> Path:
    """Return the folder of a case."""
    return options.output / case.replace(" ", "-")


def train_all(options: argparse.Namespace, sizes: dict[str, int]) -> int:
    """Train all cases, several at once if asked for; return the cores that each has for itself."""
    cores, free = sorted(os.sched_getaffinity(0)), SimpleQueue()
    each = len(cores) // options.at_once
    if not each:
        raise SystemExit(f"--at-once expected {len(cores)} at most, a core each")
    for first in range(0, each * options.at_once, each):
        free.put(cores[first : first + each])
    # Of a thread; the processes that it starts have the same cores.
    pool = ThreadPoolExecutor(
        options.at_once, initializer=lambda: os.sched_setaffinity(0, free.get())
    )
    with pool:
        for done in [pool.submit(train, case, options, sizes) for case in options.cases]:
            done.result()
    return each


def train(case: str, options: argparse.Namespace, sizes: dict[str, int]) -> None:
    """Train and translate in a process, unless that is done; say it if it cannot be."""
    folder = folder_of(case, options)
    if (folder / "result.json").is_file():
        return
    peer, _, model = case.rpartition(" ")
    python = sys.executable if case in (OURS, STOCK) else peer_python(peer)
    if python is None:
        print(f"{case} skipped, to install it: {installation(peer)}", flush=True)
        return
    print(f"{case}: training for {options.seconds:.0f} s", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    model, _, rate = model.partition("@")
    task = Task(
        data=str(options.output / "data"),
        output=str(folder),
        seconds=options.seconds,
        weights=sizes["weights"],
        longest=sizes["longest"],
        beam_width=options.beam_width,
        seed=options.seed,
        learning_rate=float(rate) if rate else None,
    )
    if case == OURS:
        from parts import quality_ours

        try:
            result = quality_ours.run(
                task, options.preset, all_settings(options), options.dev_limit
            )
            (folder / "result.json").write_text(json.dumps(result) + "\n")
        except RuntimeError as error:
            print(f"{case} left out: {error}; {folder}/log.txt says more", flush=True)
        return
    task.save(folder / "task.json")
    module = "stock_keras" if case == STOCK else peer.replace("-", "_")
    command = [python, "-P", "-m", f"peers.quality_{module}", str(folder / "task.json"), model]
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(command, env=peer_environment(), stdout=log, stderr=log)
    if done.returncode:
        status = f"it ended with status {done.returncode}"
        print(f"{case} left out: {status}; {folder}/log.txt says more", flush=True)


def translations(case: str, options: argparse.Namespace) -> list[str]:
    """Return the texts that a case made of dev."""
    from parts import quality_data

    folder = folder_of(case, options)
    if case == OURS:
        return read_lines(folder / "texts")
    return quality_data.texts(read_lines(folder / "hypotheses"), options.output / "data")


def compare(cases: list[str], options: argparse.Namespace, sizes: dict[str, int]) -> dict:
    """Score all cases; p-values are of their difference to the first."""
    from parts import quality_data
    from sacrebleu.significance import PairedTest

    from training.metrics import sacrebleu_metric, score, signatures

    config = configuration(options)
    references = quality_data.load_dev(config, options.dev_limit).references
    systems = [(case, translations(case, options)) for case in cases]
    metric = config.metric if config.metric == "bleu-zh" else "bleu"
    compared = {"BLEU": sacrebleu_metric(metric), "chrF": sacrebleu_metric("chrf")}
    _, samples = PairedTest(systems, compared, list(zip_longest(*references)), "bs")()
    rows = {}
    for number, (case, texts) in enumerate(systems):
        scores = score(metric, texts, references)
        result = json.loads((folder_of(case, options) / "result.json").read_text())
        row = {
            "weights": result["weights"],
            "of ours": round(result["weights"] / sizes["weights"], 2),
            "seconds": round(result["seconds"]),
            "steps": result["steps"],
            "epochs": result["epochs"] and round(result["epochs"], 1),
        }
        for name, key, sampled in (("BLEU", "bleu", "BLEU"), ("chrF", "chrf", "chrF2")):
            sample = samples[sampled][number]
            row[name] = round(scores[key], 2)
            row[f"{name} ±"] = round(float(sample.ci), 2)
            row[f"{name} p"] = sample.p_value and round(float(sample.p_value), 4)
        row["sentences/s"] = round(len(texts) / result["translation_s"], 1)
        rows[case] = row
    return {"rows": rows, "signatures": signatures(metric, systems[0][1], references)}


def print_table(rows: dict[str, dict]) -> None:
    """Print the measurements."""
    columns = list(next(iter(rows.values()), {}))
    print(f"{'':24}" + "".join(f"{column:>12}" for column in columns))
    for case, row in rows.items():
        cells = ("–" if row[column] is None else row[column] for column in columns)
        print(f"{case:24}" + "".join(f"{cell:>12}" for cell in cells))


def write_csv(rows: dict[str, dict], path: Path) -> None:
    """Write the measurements, a line a case."""
    with path.open("w", newline="", encoding="utf-8") as file:
        columns = list(next(iter(rows.values()), {}))
        writer = csv.DictWriter(file, ["case", *columns])
        writer.writeheader()
        writer.writerows({"case": case, **row} for case, row in rows.items())


def all_settings(options: argparse.Namespace) -> list[str]:
    """Return what is changed of the preset."""
    return options.settings + ([f"train_limit={options.limit}"] if options.limit else [])


def configuration(options: argparse.Namespace) -> object:
    """Return the preset's configuration as it is trained.

    Raises:
        training.command.errors.UserError: if there is no such preset or key.
    """
    from training.config.schema import load_preset, override

    return override(load_preset(options.preset), all_settings(options))


def keep_settings(options: argparse.Namespace) -> None:
    """Write what the results in the folder are of; refuse to mix them with others."""
    names = ("preset", "settings", "limit", "dev_limit", "seconds", "at_once", "beam_width", "seed")
    chosen = {name: getattr(options, name) for name in names}
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "settings.json"
    if file.is_file() and json.loads(file.read_text()) != chosen:
        raise SystemExit(f"{options.output} holds results of other settings: {file.read_text()}")
    file.write_text(json.dumps(chosen) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--preset", default="tatoeba-en-fr", help="whose data and size; of texts, scored by BLEU")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of it")
    add("--seconds", type=float, default=1500, help="wall time of each training")
    add("--output", type=Path, required=True, help="keep everything here")
    add("--cases", nargs="+", choices=CASES, default=CASES, help="what to train")
    add("--at-once", type=int, default=1, help="trainings, which share out the cores")
    add("--limit", type=int, help="training pairs, at random; all of them unless said")
    add("--dev-limit", type=int, help="dev sentences scored, at random; all unless said")
    add("--beam-width", type=int, default=5, help="of the search")
    add("--seed", type=int, default=1, help="of the peers; the preset has its own")
    options = parser.parse_args(arguments)
    options.output = options.output.absolute()
    from parts import quality_data

    config = configuration(options)
    scored_by_bleu = config.metric == "auto" or config.metric.startswith("bleu")
    if config.source != "text" or not scored_by_bleu or config.copy:
        raise SystemExit(f"expected a preset of texts, scored by BLEU. Received: {options.preset}")
    keep_settings(options)
    quality_data.prepare(config, options.output / "data", options.dev_limit)
    sizes = json.loads((options.output / "data" / "sizes.json").read_text())
    sizes["longest"] = max(config.max_source_length, config.max_target_length)
    cores = train_all(options, sizes)
    done = [c for c in options.cases if (folder_of(c, options) / "result.json").is_file()]
    found = compare(done, options, sizes) if done else {"rows": {}}
    print_table(found["rows"])
    write_csv(found["rows"], options.output / "table.csv")
    settings = json.loads((options.output / "settings.json").read_text())
    print(json.dumps({**found, **settings, **sizes, "cores": cores}))


if __name__ == "__main__":
    main()
