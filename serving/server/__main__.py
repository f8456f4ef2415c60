"""A local model server with TensorFlow Serving's protocol and flags.

    python -m serving.server --port=8500 --model_name=NAME --model_base_path=PATH

The server is for your own machine, tests and small services. It listens on the loopback address
unless you set `--host`. SIGTERM stops it: the server accepts no new requests, and lets running
requests finish within `--shutdown_grace_seconds`. A second signal ends the process at once.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

if __name__ == "__main__":  # Ctrl-C during the imports below
    signal.signal(signal.SIGINT, lambda *_: os.write(2, b"Interrupted.\n") and os._exit(130))

from serving.api._printing import first_line, print_error, printable
from serving.server._settings import build_parser
from training.command.errors import refuse_windows

# Time after the grace for stopped runs to end. Then an alarm ends the process.
_HARD_STOP_SECONDS = 10


class _OneLine(logging.Formatter):
    """Writes each record on one line: escapes line ends and controls, in tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    refuse_windows()
    parser = build_parser()
    flags = parser.parse_args(argv)
    if flags.model_base_path is None and flags.model_config_file is None:
        parser.error("one of --model_base_path and --model_config_file is required")
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Imported late, so that wrong flags are reported at once.
    from serving.server._model_server import ModelServer

    server, errors = ModelServer(flags), []

    def handle(*_: object) -> None:
        """Stop the server. A second signal, or an alarm after the grace, ends the process."""
        server.stop.set()
        signal.alarm(flags.shutdown_grace_seconds + _HARD_STOP_SECONDS)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    def serve() -> None:
        try:
            server.start()
            server.stop.wait()
        except Exception as error:
            errors.append(error)
        finally:
            server.close()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    # Python handles signals in the main thread only, and not during a call of TensorFlow.
    thread = threading.Thread(target=serve, name="serve")
    thread.start()
    while thread.is_alive():
        thread.join(0.5)
    for error in errors:
        print_error(f"Failed to start server. Error: {first_line(error)}")
    return len(errors)


if __name__ == "__main__":
    sys.exit(main())
