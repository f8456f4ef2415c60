"""The export gate: would TensorFlow Serving serve this SavedModel, and answer as Python does?

    python -m serving.check models/NAME/1

Loads the version through the C++ loader that TensorFlow Serving uses, runs every signature, and
prints one line for each finding. The exit status is 0 only where there is none. A model is a
program, so it is loaded in a process of its own, which is ended when a step takes too long.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

import training.command.extras  # noqa: F401
from training.command.errors import UserError
from training.command.options import main_guard
from training.command.parser import Parser, number_from_0
from training.command.progress import Tell, stages

STEP_SECONDS = 120.0
_RUN = "from serving.check.version import main; main()"
_LAST_WORDS = 2000  # characters of what a process that died has said


def check(
    version_dir: Path,
    step_seconds: float = STEP_SECONDS,
    tell: Tell = lambda stage, share=None: None,
) -> list[str]:
    """All findings about a model version, none where it can be served.

    Args:
        version_dir: the directory that holds `saved_model.pb`.
        step_seconds: the most that one step may take, such as loading it or running one batch.
        tell: is called with what is done next, see `training.command.progress.stages`.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(version_dir)],
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
                return [f"{stage}: it did not end within {seconds:g} s"]
            if not line:
                break
            answer = json.loads(line)
            if "findings" in answer:
                return answer["findings"]
            stage, seconds = answer["stage"], step_seconds
            tell(stage, answer["share"])
        status = process.wait()
        readers[1].join()
        return [f"{stage}: {_death(status, ''.join(said)[-_LAST_WORDS:])}"]
    finally:
        process.kill()
        process.wait()


def _read(stream: Sequence[str], put: Callable[[str], None]) -> None:
    """Hand on the lines of a stream, and at its end an empty one."""
    for line in stream:
        put(line)
    put("")


def _death(status: int, said: str) -> str:
    """Say of what the process died."""
    if status < 0:
        return f"the process that ran it was ended by {signal.Signals(-status).name}"
    last = (said.strip().splitlines() or [f"exit status {status}"])[-1]
    return f"the process that ran it failed: {last}"


def main(argv: Sequence[str] | None = None) -> int:
    """Check; returns the exit status."""
    parser = Parser(
        prog="python -m serving.check",
        description="Checks that TensorFlow Serving can serve a SavedModel.",
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
    arguments = parser.parse_args(argv)
    if not arguments.timeout:
        raise UserError("--timeout expected more than 0 seconds")
    with stages("starting TensorFlow") as tell:
        findings = check(arguments.version_dir, arguments.timeout, tell)
    if arguments.json:
        print(json.dumps({"path": str(arguments.version_dir), "findings": findings}))
    else:
        for finding in findings or [f"{arguments.version_dir}: ready to serve"]:
            print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    main_guard(lambda: sys.exit(main()))
