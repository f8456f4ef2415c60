"""Translate files: python -m serving.batch --model models/NAME --input 'GLOB' --output DIR."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from training.command.options import going_on, main_guard
from training.command.parser import Parser, positive_int
from training.command.progress import progress


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = _parser().parse_args(arguments)
    # NumPy and the like take a while to import.
    from serving.batch import engines, files
    from serving.batch.job import Job, start, summary, sweep
    from serving.batch.kinds import Events, Folder, Kind, Texts
    from serving.client import file_kinds

    started = time.monotonic()
    model, output = engines.latest_version(options.model), options.output.resolve()
    paths = files.find(options.inputs, output)
    kinds: dict[str, Kind] = {
        "text": Texts(options.field, options.longest),
        "events": Events(options.id, options.time),
        **{kind.name: Folder(kind) for kind in file_kinds.KINDS},
    }
    job = Job(model, output, kinds[files.kind_of(paths[0])], options.batch_size)
    start(job)
    if options.workers == 1 and options.address is None:
        reports = engines.in_process(job, paths, options.threads)
    else:
        reports = engines.on_ray(job, paths, options.threads, options.workers, options.address)
    done = []
    with (
        going_on("the same command answers the files that are missing"),
        progress(len(paths), "files") as advance,
    ):
        for report in reports:
            done.append(report)
            advance(1)
    sweep(job)
    print(json.dumps(summary(job, done, time.monotonic() - started)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m serving.batch",
        description="Translate files of any size with an exported model; or read images, or "
        "predict from tables of events. Each input file, or folder of images, gives one output "
        "file of JSON lines, in order, written aside and renamed: one that is there is "
        "whole, and a job that is started again makes the missing ones. The last line printed is "
        "a JSON object.",
        examples=(
            "--model models/en-fr --input 'texts/*.txt' --output french",
            "--model models/digits --input scans --output read --workers 4",
        ),
    )
    parser.add_argument(
        "--model", type=Path, required=True, metavar="DIR", help="models/NAME, or a version of it"
    )
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        required=True,
        metavar="GLOB",
        help="text files with a text a line, or .jsonl, .gz or not; folders or files of PNG or "
        "JPEG images; .csv, .gz or not, a row for each visit; may be given several times",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="of the answers")
    parser.add_argument(
        "--field", default="text", metavar="KEY", help="of JSON lines; default: text"
    )
    parser.add_argument("--id", default="id", metavar="COLUMN", help="of a table: whose a row is")
    parser.add_argument("--time", default="time", metavar="COLUMN", help="of a table: when it was")
    parser.add_argument(
        "--workers",
        type=positive_int,
        default=1,
        metavar="N",
        help="processes, each with a model; more than one need Ray; default: 1",
    )
    parser.add_argument("--address", metavar="ADDRESS", help="of a Ray cluster, or auto")
    parser.add_argument(
        "--threads", type=positive_int, default=1, metavar="N", help="of each worker; default: 1"
    )
    parser.add_argument(
        "--batch-size", type=positive_int, default=64, metavar="N", help="answered together"
    )
    parser.add_argument(
        "--max-bytes",
        "--longest",
        dest="longest",
        type=positive_int,
        default=4000,
        metavar="BYTES",
        help="longer texts are kept aside with the reason; default: 4000",
    )
    return parser


if __name__ == "__main__":
    main_guard(main)
