"""Checks in a process of their own: a model is a program, which may crash and may never end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from serving.check.releases import OLDEST
from serving.server.storage import is_onnx
from training.command.progress import Tell

STEP_SECONDS = 120.0
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
    more = ([str(run)] if run else []) if is_onnx(version_dir) else [release]
    return _in_a_process(version_dir, more, step_seconds, tell)["findings"]


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
    return _in_a_process(version_dir, [OLDEST, *server], step_seconds, tell)


def _in_a_process(
    version_dir: Path, more: Sequence[str], step_seconds: float, tell: Tell
) -> dict[str, Any]:
    """The last answer of a check's process; where there is none, that is a finding."""
    code = _RUN.format("onnx" if is_onnx(version_dir) else "version")
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(version_dir), *more],
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
