"""One line at the end of a process that trains with others, however one of them is lost."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, NoReturn

from training.command.errors import UserError

AGAIN = "start all of them again with the same command, and they go on from the last epoch"
# How JAX's service says that another process does not answer; then it ends this one by SIGABRT.
_SERVICE = "JAX distributed service detected fatal errors"
_ending = threading.Lock()


@contextmanager
def one_line_at_the_end(name: str) -> Iterator[None]:
    """End the process with status 1 where something is raised, or native code aborts it.

    Python's own end would wait for the other processes, which wait for this one. A user's mistake,
    an interruption and the loss of another process are one line on standard error. Anything else is
    a defect and keeps its trace and the output of native code, which is dropped otherwise.
    """
    with ExitStack() as stack:
        said = stack.enter_context(_native_output_aside())

        def end(line: str) -> NoReturn:
            _ending.acquire()  # for ever: whoever comes second says nothing
            with suppress(OSError):  # whoever read it has gone
                sys.stdout.flush()
                print(line, file=sys.stderr, flush=True)
            os._exit(1)

        def aborted(number: int) -> None:
            text = _text(said)
            if _SERVICE in text:
                end(f"error: {name} ends, for another has ended or does not answer: {AGAIN}")
            end(f"{text}\nerror: {name} was aborted")

        stack.enter_context(_on_abort(aborted))
        try:
            yield
        except UserError as error:
            end(f"error: {name}: {error}")
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            end(f"error: {name}: {error.strerror or error}{where}")
        except KeyboardInterrupt:
            end("\nInterrupted.")
        except Exception as error:
            if reason := _of_another(error):
                end(f"error: {name} ends, for another has ended ({reason}): {AGAIN}")
            end("\n".join(filter(None, [_text(said), traceback.format_exc().strip()])))


@contextmanager
def _native_output_aside() -> Iterator[IO[bytes]]:
    """Send what native code writes to standard output and error to the file that is yielded."""
    with tempfile.TemporaryFile() as said, ExitStack() as stack:
        for number, stream in ((1, "stdout"), (2, "stderr")):
            before = getattr(sys, stream)
            before.flush()
            kept = os.dup(number)
            os.dup2(said.fileno(), number)
            ours = os.fdopen(kept, "w", buffering=1, encoding="utf-8")
            stack.enter_context(ours)
            stack.callback(os.dup2, kept, number)
            setattr(sys, stream, ours)
            stack.callback(setattr, sys, stream, before)
        yield said


@contextmanager
def _on_abort(function: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the signal's number where native code calls `abort`.

    A handler of Python's would wait until the main thread runs Python again, which it never does.
    """
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(function)
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, before)


def _text(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace").strip()


def _of_another(error: Exception) -> str:
    """Return what an error says of the connection to another process, or nothing."""
    found = re.search(r"(Gloo|NCCL|coordination service)[^\n]*", str(error), re.IGNORECASE)
    return re.sub(r"\s*\[[^\]]*\]:?\d*", "", found[0]).strip() if found else ""
