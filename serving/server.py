"""A local model server with TensorFlow Serving's protocol and flags.

    python -m serving.server --port=8500 --model_name=NAME --model_base_path=PATH

Stands in for `tensorflow_model_server` where that cannot run. It listens on the loopback address
unless `--host` says otherwise, and stops on SIGTERM when the requests under way have ended.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from serving.model_server.flags import build_parser
from serving.status import StatusError


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.model_base_path is None and arguments.model_config_file is None:
        parser.error("one of --model_base_path and --model_config_file is required")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    # TensorFlow takes seconds to import: not before the flags are known to be right.
    import training.quiet  # noqa: F401

    from serving.model_server.model_server import ModelServer

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = ModelServer(arguments, stop)
    try:
        server.start()
        stop.wait()
    except (StatusError, OSError) as error:
        print(f"Failed to start server. Error: {error}", file=sys.stderr)
        return 1
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
