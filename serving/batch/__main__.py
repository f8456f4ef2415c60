"""Translate files: python -m serving.batch --model models/NAME --input 'GLOB' --output DIR."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.command.options import Parser, folder_to_write, going_on, main_guard, positive_int
from training.command.progress import progress
from training.command.visible import visible


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = _parser().parse_args(arguments)
    # Imported late: NumPy and others are slow to import.
    from serving.batch import _job as jobs
    from serving.batch._inputs import KINDS, find, kind_of

    started = time.monotonic()
    model, output = jobs.latest_version(options.model), options.output.resolve()
    inputs = find(options.inputs, output)
    kind = KINDS[kind_of(inputs[0][0])](options.id, options.time)
    job = jobs.BatchJob(model, output, kind, options.batch_size)
    jobs.start(job)
    if options.workers > 1 or options.address is not None:
        reports = jobs.on_ray(job, inputs, options.threads, options.workers, options.address)
    else:
        ask = jobs.load_model(job, options.threads)
        reports = (jobs.answer_input(job, ask, files) for files in inputs)
    done = []
    with (
        going_on("the same command answers the files that are missing"),
        progress(len(inputs), "files") as advance,
    ):
        for report in reports:
            done.append(report)
            for note in report.notes.splitlines():
                print(f"Warning: {visible(note)}", file=sys.stderr)
            advance(1)
    jobs.sweep(job)
    print(json.dumps(jobs.summary(job, done, time.monotonic() - started)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m serving.batch",
        description="Translate files of any size with an exported model; or read images, or "
        "predict from tables of events. Each input file, or folder of images, gives one output "
        "file of JSON lines, in the order of the input. An output file appears when it is "
        "complete. If you run the command again, it writes the missing files. The last line "
        "printed is a JSON object.",
        examples=(
            "--model models/en-fr --input 'texts/*.txt' --output french",
            "--model models/digits --input scans --output read --workers 4",
        ),
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="DIR", help="models/NAME, or a version of it")
    text = (
        'text files with a text on each line, or .jsonl files of objects with a "text"; folders or '
        "files of PNG or JPEG images; .csv files with a row for each visit. Texts and tables may "
        "be compressed (.gz). May be given several times"
    )
    add("--input", dest="inputs", action="append", required=True, metavar="GLOB", help=text)
    add(
        "--output", type=folder_to_write, required=True, metavar="DIR", help="folder of the answers"
    )
    add("--id", default="id", metavar="COLUMN", help="column of ids in a table")
    add("--time", default="time", metavar="COLUMN", help="column of times in a table")
    number: dict[str, Any] = {"type": positive_int, "metavar": "N"}
    add("--workers", default=1, help="processes with a model each; several need Ray", **number)
    add("--address", metavar="ADDRESS", help="address of a Ray cluster, or auto")
    add("--threads", default=1, help="threads of each worker", **number)
    add("--batch-size", default=64, help="items answered together", **number)
    return parser


if __name__ == "__main__":
    main_guard(main)
