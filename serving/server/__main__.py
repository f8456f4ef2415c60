"""A local model server with TensorFlow Serving's protocol and flags.

    python -m serving.server --port=8500 --model_name=NAME --model_base_path=PATH

It stands in for `tensorflow_model_server` where that cannot run. It listens on the loopback address
unless `--host` says otherwise. SIGTERM ends it gracefully: it takes no new requests, and requests
under way may end within `--shutdown_grace_seconds`. A second signal ends it at once. SIGUSR1 prints
the stack of each thread.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from serving.client.printing import printable
from serving.savedmodel.status import StatusError
from serving.server.flags import build_parser
from serving.server.log_lines import log_to
from training.command.errors import refuse_windows

if TYPE_CHECKING:
    from serving.server.model_server import ModelServer

# After the grace: for runs to notice that they were stopped. Then the process ends, whatever runs.
_HARD_STOP_SECONDS = 10


def _end(status: int) -> None:
    """End the process, even if a thread is inside TensorFlow or the log is blocked.

    A normal exit would wait for all threads, perhaps for ever.
    """
    os._exit(status)


def _stop_on_signals(stop: threading.Event, grace_seconds: int) -> None:
    """Set `stop` on the first signal, and end the process after the grace; at once on a second.

    Python handles signals in the main thread, and not while that is inside TensorFlow. So the main
    thread only waits for others. The alarm is the system's: it ends the process even if a thread
    holds the interpreter's lock.
    """

    def handle(*_: object) -> None:
        if stop.is_set():
            _end(1)
        stop.set()
        signal.alarm(grace_seconds + _HARD_STOP_SECONDS)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def _wait(work: "Future[int]") -> int:
    """Wait for another thread's result, and handle signals meanwhile.

    The system may deliver a signal to any thread. Python runs the handler in the main thread once
    that wakes. A main thread that waits for a lock would not wake, so it reads a socket instead.
    """
    woken, waker = socket.socketpair()

    def wake(_: object) -> None:
        with contextlib.suppress(OSError):  # a signal came first, and the socket is closed
            waker.send(b"\0")

    with woken, waker:
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        try:
            work.add_done_callback(wake)
            while not work.done():
                woken.recv(1)
        finally:
            signal.set_wakeup_fd(-1)
        return work.result()


def _serve(server: "ModelServer", stop: threading.Event) -> int:
    try:
        server.start()
        stop.wait()
    except (StatusError, OSError) as error:
        print(f"Failed to start server. Error: {printable(str(error))}", file=sys.stderr)
        return 1
    finally:
        server.close()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    refuse_windows()
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.model_base_path is None and arguments.model_config_file is None:
        parser.error("one of --model_base_path and --model_config_file is required")
    log_to(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.__stderr__ or sys.stderr)
    # Not before the flags are known to be right.
    from serving.server.model_server import ModelServer

    stop = threading.Event()
    _stop_on_signals(stop, arguments.shutdown_grace_seconds)
    with ThreadPoolExecutor(1, thread_name_prefix="serve") as thread:
        return _wait(thread.submit(_serve, ModelServer(arguments, stop), stop))


if __name__ == "__main__":
    _end(main())
