"""The export gate: would TensorFlow Serving serve this SavedModel, and answer as Python does?

    python -m serving.check models/NAME/1

Loads the version through the C++ loader that TensorFlow Serving uses, runs every signature, and
prints one line for each finding. The exit status is 0 only where there is none.

    python -m serving.check models/NAME/1 --against HOST:PORT --rest HOST:PORT --report REPORT.md

asks a server of the same version all questions of the check, and compares its answers with those of
the C++ session here.

An ONNX export is asked in onnxruntime: whether its graphs are valid, each row is answered as alone,
and with `--run` translations are those of its run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import training.command.extras  # noqa: F401
from serving.client.printing import printable
from training.command.files import write_text
from training.command.options import Parser, file_to_write, main_guard
from training.command.progress import Tell, stages

_RELEASES = ("2.20", "2.21")


def main(argv: Sequence[str] | None = None) -> int:
    """Check; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    version_dir = options.version_dir.absolute()
    onnx = (version_dir / "manifest.json").is_file()
    if not options.against and (options.rest or options.report or options.model):
        parser.error("--rest, --report and --model are for --against HOST:PORT")
    if options.run and not onnx:
        parser.error(f"--run expected an ONNX export. Received: {version_dir}")
    if options.against and onnx:
        parser.error(f"--against expected a SavedModel. Received: {version_dir}")
    if options.against and not version_dir.name.isdecimal():
        parser.error(f"expected the directory of a version. Received: {version_dir}")
    with stages("starting the runtime") as tell:
        answer = _check(options, version_dir, onnx, tell)
    findings = answer["findings"] = [*map(printable, answer["findings"])]
    if options.json:
        print(json.dumps({"path": str(options.version_dir), **answer}))
    elif findings:
        print("\n".join(findings))
    elif options.against:
        print(f"{version_dir}: {options.against} answers all {answer['asked']} requests alike")
    else:
        print(f"{options.version_dir}: ready to {'use' if onnx else 'serve'}")
    return 1 if findings else 0


def _check(
    options: argparse.Namespace, version_dir: Path, onnx: bool, tell: Tell
) -> dict[str, Any]:
    """Return `findings`, and with `--against` the number of requests `asked`."""
    if onnx:
        from serving.check.onnx import check_folder  # no TensorFlow

        return {"findings": check_folder(version_dir, options.run, tell)}
    from serving.check.version import check_version  # TensorFlow takes seconds

    if not options.against:
        return {"findings": check_version(version_dir, tell, options.release)}
    from serving.check.against import Server, compare, report

    server = Server(options.against, options.model or version_dir.parent.name, options.rest)
    count, differences = compare(version_dir, server, tell)
    if options.report:
        about = f"{options.against}, {options.server_version}"
        write_text(options.report, report(version_dir, about, count, differences))
    return {"findings": differences, "asked": count}


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
    add = parser.add_argument
    add("version_dir", type=Path, metavar="models/NAME/1", help="of an export")
    add("--json", action="store_true", help="print one JSON object")
    text = "gRPC of a server to compare with, such as the stock"
    add("--against", metavar="HOST:PORT", help=text)
    add("--rest", default="", metavar="HOST:PORT", help="its REST, which is left out without this")
    add("--model", metavar="NAME", help="the model's name there; default: of models/NAME/1")
    text = "for the report: servers do not tell theirs"
    add("--server-version", default="unknown", metavar="TEXT", help=text)
    text = "of TensorFlow Serving, whose ops an export may use"
    add("--release", choices=_RELEASES, default=_RELEASES[0], help=text)
    add("--run", type=Path, metavar="DIR", help="of an ONNX export, which is compared with it")
    add("--report", type=file_to_write, metavar="FILE", help="the comparison, in Markdown")
    return parser


if __name__ == "__main__":
    main_guard(lambda: sys.exit(main()))
