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

import json
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import training.command.extras  # noqa: F401
from serving.check.releases import OLDEST, RELEASES
from training.command.files import write_text
from training.command.options import main_guard
from training.command.parser import Parser, file_to_write, number_from_0
from training.command.progress import Tell, stages

STEP_SECONDS = 120.0
ONNX_MANIFEST = "manifest.json"
_RUN = "from serving.check.{} import main; main()"
_END_SECONDS = 1.0  # in which what was printed is read to its end
_LAST_WORDS = 2000  # characters of what a process that died has said


def check(
    version_dir: Path,
    step_seconds: float = STEP_SECONDS,
    tell: Tell = lambda stage, share=None: None,
    run: Path | None = None,
    release: str = OLDEST,
) -> list[str]:
    """All findings about a model version, none where it can be served, or an ONNX export used.

    Args:
        version_dir: the directory that holds `saved_model.pb`, or the `manifest.json` of an ONNX
            export.
        step_seconds: the most that one step may take, such as loading it or running one batch.
        tell: is called with what is done next, see `training.command.progress.stages`.
        run: that an ONNX export is compared with.
        release: of TensorFlow Serving, one of `releases.RELEASES`, that a SavedModel is for.
    """
    more = ([str(run)] if run else []) if _is_onnx(version_dir) else [release]
    return _in_a_process([str(version_dir), *more], step_seconds, tell)["findings"]


def check_against(
    version_dir: Path,
    server: Sequence[str],
    step_seconds: float = STEP_SECONDS,
    tell: Tell = lambda stage, share=None: None,
) -> dict[str, Any]:
    """Compare a server with the C++ session here: `findings`, and the number `asked`.

    Args:
        version_dir: of the version, which the server serves, too.
        server: HOST:PORT of its gRPC, the model's name there, and HOST:PORT of its REST or "".
        step_seconds: the most that one request may take.
        tell: see `check`.
    """
    return _in_a_process([str(version_dir), OLDEST, *server], step_seconds, tell)


def _in_a_process(arguments: Sequence[str], step_seconds: float, tell: Tell) -> dict[str, Any]:
    """The last answer of a check's process; where there is none, that is a finding."""
    code = _RUN.format("onnx" if _is_onnx(arguments[0]) else "version")
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: SimpleQueue[str] = SimpleQueue()
    said: list[str] = []
    readers = [
        threading.Thread(target=_read, args=(process.stdout, lines.put), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, said.append), daemon=True),
    ]
    for reader in readers:
        reader.start()
    stage, seconds = "starting TensorFlow", max(step_seconds, STEP_SECONDS)
    try:
        while True:
            try:
                line = lines.get(timeout=seconds)
            except Empty:
                return {"findings": [f"{stage}: it did not end within {seconds:g} s"]}
            if not line:
                break
            answer = json.loads(line)
            if "findings" in answer:
                return answer
            stage, seconds = answer["stage"], step_seconds
            tell(stage, answer["share"])
        status = process.wait()
        readers[1].join()
        return {"findings": [f"{stage}: {_death(status, ''.join(said)[-_LAST_WORDS:])}"]}
    finally:
        process.kill()
        process.wait()
        for reader, stream in zip(readers, (process.stdout, process.stderr), strict=True):
            reader.join(_END_SECONDS)
            if stream and not reader.is_alive():  # a child of the model's may hold it open
                stream.close()


def _read(stream: Sequence[str], put: Callable[[str], None]) -> None:
    """Hand on the lines of a stream, and at its end an empty one."""
    for line in stream:
        put(line)
    put("")


def _death(status: int, said: str) -> str:
    """Say why the process died."""
    if status < 0:
        return f"the process that ran it was ended by {signal.Signals(-status).name}"
    last = (said.strip().splitlines() or [f"exit status {status}"])[-1]
    return f"the process that ran it failed: {last}"


def _is_onnx(version_dir: str | Path) -> bool:
    return (Path(version_dir) / ONNX_MANIFEST).is_file()


def main(argv: Sequence[str] | None = None) -> int:
    """Check; returns the exit status."""
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
    arguments = parser.parse_args(argv)
    if not arguments.timeout:
        parser.error("--timeout expected more than 0 seconds. Received: 0")
    if not arguments.against and (arguments.rest or arguments.report or arguments.model):
        parser.error("--rest, --report and --model are for --against HOST:PORT")
    version_dir, ready = arguments.version_dir.absolute(), "ready to serve"
    if _is_onnx(version_dir):
        ready = "ready to use"
    elif arguments.run:
        parser.error(f"--run expected an ONNX export. Received: {version_dir}")
    answer: dict[str, Any]
    with stages("starting the runtime") as tell:
        if arguments.against:
            if not version_dir.name.isdecimal():
                parser.error(f"expected the directory of a version. Received: {version_dir}")
            model = arguments.model or version_dir.parent.name
            server = (arguments.against, model, arguments.rest)
            answer = check_against(version_dir, server, arguments.timeout, tell)
            ready = f"{arguments.against} answers all {answer.get('asked', 0)} requests alike"
        else:
            held_to = arguments.run, arguments.release
            answer = {"findings": check(version_dir, arguments.timeout, tell, *held_to)}
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


def report(version_dir: Path, server: str, answer: dict[str, Any]) -> str:
    """A comparison in Markdown, to be pasted into an issue."""
    findings = answer["findings"]
    here = f"TensorFlow {version('tensorflow')}, Python {platform.python_version()}"
    lines = [
        f"# {version_dir.parent.name}/{version_dir.name} against a server",
        "",
        "| | |",
        "|---|---|",
        f"| server | {server} |",
        f"| compared with | the C++ session of {here}, {platform.platform()} |",
        f"| date | {datetime.now(UTC):%Y-%m-%d %H:%M} UTC |",
        f"| requests | {answer.get('asked', 'the comparison did not end')} |",
        f"| differences | {len(findings)} |",
        "",
        *(f"- {finding}" for finding in findings),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main_guard(lambda: sys.exit(main()))
