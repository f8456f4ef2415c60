"""The export gate: would TensorFlow Serving serve this SavedModel, and answer as Python does?

    python -m serving.check models/NAME/1

Loads the version through the C++ loader that TensorFlow Serving uses, runs every signature, and
prints one line for each finding. The exit status is 0 only where there is none. A model is a
program, so it is loaded in a process of its own, which is ended when a step takes too long.

    python -m serving.check models/NAME/1 --against HOST:PORT --rest HOST:PORT --report REPORT.md

asks a server of the same version all questions of the check, and compares its answers with those of
the C++ session here.

An ONNX export is asked in onnxruntime: whether its graphs are valid, each row is answered as alone,
and translations are those of its run, or of a SavedModel of the run beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import training.command.extras  # noqa: F401
from serving.check.apart import STEP_SECONDS, check, check_against
from serving.check.releases import OLDEST, RELEASES
from serving.check.report import report
from serving.server.storage import is_onnx
from training.command.files import write_text
from training.command.options import main_guard
from training.command.parser import Parser, file_to_write, number_from_0
from training.command.progress import stages


def main(argv: Sequence[str] | None = None) -> int:
    """Check; returns the exit status."""
    arguments = _asked(argv)
    version_dir = arguments.version_dir.absolute()
    answer: dict[str, Any]
    with stages("starting the runtime") as tell:
        if arguments.against:
            model = arguments.model or version_dir.parent.name
            server = (arguments.against, model, arguments.rest)
            answer = check_against(version_dir, server, arguments.timeout, tell)
            ready = f"{arguments.against} answers all {answer.get('asked', 0)} requests alike"
        else:
            held_to = arguments.run, arguments.release
            answer = {"findings": check(version_dir, arguments.timeout, tell, *held_to)}
            ready = f"ready to {'use' if is_onnx(version_dir) else 'serve'}"
    findings = answer["findings"]
    if arguments.report:
        about = f"{arguments.against}, {arguments.server_version}"
        write_text(arguments.report, report(version_dir, about, answer))
    if arguments.json:
        print(json.dumps({"path": str(arguments.version_dir), **answer}))
    else:
        for finding in findings or [f"{arguments.version_dir}: {ready}"]:
            print(finding)
    return 1 if findings else 0


def _asked(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments, and end the command where they do not go together."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    version_dir = arguments.version_dir.absolute()
    if not arguments.timeout:
        parser.error("--timeout expected more than 0 seconds. Received: 0")
    if not arguments.against and (arguments.rest or arguments.report or arguments.model):
        parser.error("--rest, --report and --model are for --against HOST:PORT")
    if arguments.run and not is_onnx(version_dir):
        parser.error(f"--run expected an ONNX export. Received: {version_dir}")
    if arguments.against and is_onnx(version_dir):
        parser.error(f"--against expected a SavedModel. Received: {version_dir}")
    if arguments.against and not version_dir.name.isdecimal():
        parser.error(f"expected the directory of a version. Received: {version_dir}")
    return arguments


def _parser() -> Parser:
    parser = Parser(
        prog="python -m serving.check",
        description="Checks that TensorFlow Serving can serve a SavedModel, or that an ONNX export "
        "answers as its run does.",
        examples=(
            "models/en-fr/1",
            "models/en-fr/1 --against localhost:8500 --report stock.md",
        ),
    )
    parser.add_argument("version_dir", type=Path, metavar="models/NAME/1", help="of an export")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--timeout",
        type=number_from_0,
        default=STEP_SECONDS,
        metavar="SECONDS",
        help="for each step, such as loading the version or running one batch; default: 120",
    )
    add = parser.add_argument
    add(
        "--against", metavar="HOST:PORT", help="gRPC of a server to compare with, such as the stock"
    )
    add("--rest", default="", metavar="HOST:PORT", help="its REST, which is left out without this")
    add("--model", metavar="NAME", help="the model's name there; default: of models/NAME/1")
    add(
        "--server-version",
        default="unknown",
        metavar="TEXT",
        help="for the report: servers do not tell theirs",
    )
    add(
        "--release",
        choices=RELEASES,
        default=OLDEST,
        help="of TensorFlow Serving, whose ops an export may use; default: %(default)s",
    )
    add("--run", type=Path, metavar="DIR", help="of an ONNX export, which is compared with it")
    add("--report", type=file_to_write, metavar="FILE", help="the comparison, in Markdown")
    return parser


if __name__ == "__main__":
    main_guard(lambda: sys.exit(main()))
