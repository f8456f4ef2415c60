"""A local model server with TensorFlow Serving's protocol and flags.

    python -m serving.server --port=8500 --model_name=NAME --model_base_path=PATH

Stands in for `tensorflow_model_server` where that cannot run. It listens on the loopback address
unless `--host` says otherwise, and stops on SIGTERM when the requests under way have ended.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent import futures

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from serving.model_server.flags import build_parser
from serving.model_server.grpc_services import ModelService, PredictionService
from serving.model_server.manager import ModelManager
from serving.model_server.servable import Servable
from serving.status import StatusError

_WORKERS = 64
_GRACE_SECONDS = 30
_LOOK_AGAIN_SECONDS = 1

log = logging.getLogger("serving.server")


class ModelServer:
    """The server that the flags describe.

    `start` returns when every model is available and the ports are open, or, without effect, when
    `stop` was set meanwhile. It raises StatusError or OSError where it cannot serve.
    """

    def __init__(self, arguments: argparse.Namespace, stop: threading.Event | None = None):
        self._arguments = arguments
        self._stop = stop or threading.Event()
        self.manager = ModelManager[Servable](Servable)
        self.port = 0
        self._grpc: grpc.Server | None = None

    def start(self) -> None:
        """Load the models, then open the ports."""
        arguments = self._arguments
        self.manager.configure(
            _model_config(arguments), wait=lambda: self._stop.wait(_LOOK_AGAIN_SECONDS)
        )
        if self._stop.is_set():
            return
        if arguments.file_system_poll_wait_seconds:
            self.manager.start_polling(arguments.file_system_poll_wait_seconds)
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(_WORKERS, thread_name_prefix="request"),
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            PredictionService(self.manager), self._grpc
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelService(self.manager), self._grpc
        )
        address = f"{arguments.host}:{arguments.port}"
        try:
            self.port = self._grpc.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: is the port in use?") from error
        self._grpc.start()
        log.info("Running gRPC ModelServer at %s:%d ...", arguments.host, self.port)

    def close(self) -> None:
        """Take no new requests, let those under way end, free the models."""
        if self._grpc:
            self._grpc.stop(_GRACE_SECONDS).wait()
        self.manager.close()


def _model_config(arguments: argparse.Namespace) -> model_server_config_pb2.ModelConfigList:
    config = model_server_config_pb2.ModelConfigList()
    config.config.add(
        name=arguments.model_name,
        base_path=str(arguments.model_base_path.resolve()),
        model_platform="tensorflow",
    )
    return config


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.model_base_path is None:
        parser.error("--model_base_path is required")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
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
