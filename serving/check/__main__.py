"""The export gate: would TensorFlow Serving serve this SavedModel, and answer as Python does?

`python -m serving.check models/NAME/1` loads the version through the C++ loader that TensorFlow
Serving uses, or as ONNX graphs, and runs every signature. With `--against` and `--rest`, it
compares the answers of a server with the answers of the C++ session. It prints a line for each
finding. The exit status is 0 only without findings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from serving.api._export_files import ONNX_MANIFEST
from serving.api._printing import printable
from serving.api._versions import newest_version, version_number
from training.command.errors import UserError
from training.command.native import need, start_tensorflow
from training.command.options import Parser, main_guard
from training.command.progress import stages
from training.runs.files import RunFiles


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    version_dir = options.version_dir.absolute()
    onnx = (version_dir / ONNX_MANIFEST).is_file()
    if not options.against and (options.rest or options.model):
        parser.error("--rest and --model are for --against HOST:PORT")
    if options.run and not onnx:
        parser.error(f"--run works only for an ONNX export, but {version_dir} is none")
    if options.against and onnx:
        parser.error(f"--against works only for a SavedModel, but {version_dir} is none")
    if options.against and version_number(version_dir.name) is None:
        parser.error(f"{version_dir} is not a version. Give its numbered directory")
    if options.run:
        RunFiles(options.run).trained()
    if not onnx and not (version_dir / "saved_model.pb").is_file():
        below = newest_version(version_dir, "saved_model.pb")
        below = below or newest_version(version_dir, ONNX_MANIFEST)
        if below:
            hint = f"Check its numbered directory: python -m serving.check {below}"
        else:
            hint = "Give a directory that python -m serving.export made, such as models/NAME/1"
        raise UserError(f"{version_dir} is not a version. {hint}")
    need("serving")
    good = f"{options.version_dir}: ready to {'use' if onnx else 'serve'}"
    with stages("starting the runtime") as tell:
        if options.run or not onnx:
            start_tensorflow()  # which takes seconds
        if onnx:
            from serving.check._onnx import check_folder  # no TensorFlow

            findings = check_folder(version_dir, options.run, tell)
        elif options.against:
            from serving.check._against import compare

            model = options.model or version_dir.parent.name
            count, findings = compare(version_dir, options.against, model, options.rest, tell)
            good = f"{version_dir}: {options.against} answers all {count} requests alike"
        else:
            from serving.check._version import check_version

            findings = check_version(version_dir, tell)
    print("\n".join(map(printable, findings)) or good)
    return 1 if findings else 0


def _parser() -> Parser:
    parser = Parser(
        prog="python -m serving.check",
        description="Checks that TensorFlow Serving can serve a SavedModel, or that an ONNX export "
        "answers as its run does.",
        examples=("models/en-fr/1", "models/en-fr/1 --against localhost:8500"),
    )
    add = parser.add_argument
    add("version_dir", type=Path, metavar="models/NAME/1", help="an export")
    text = "gRPC address of a server to compare with, such as the stock server"
    add("--against", metavar="HOST:PORT", help=text)
    text = "REST address of that server, to compare REST, too"
    add("--rest", default="", metavar="HOST:PORT", help=text)
    add("--model", metavar="NAME", help="name of the model on that server; default: as in the path")
    add("--run", type=Path, metavar="DIR", help="the run to compare an ONNX export with")
    return parser


if __name__ == "__main__":
    main_guard(lambda: sys.exit(main()))
