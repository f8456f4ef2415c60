"""What clients notice of each other on the local server, and when abandoned runs stop.

    python benchmarks/serving_limits.py --model models/NAME

A model is a SavedModel or an ONNX export of a translator. One client sends short texts, next to a
number of expensive requests of another client: texts that are longer than the model reads. Then
runs of many such texts are cancelled while nothing else runs. Prints a table; the last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from threading import Event

import grpc
from parts.local_server import free_port, server

from serving.client import serving_pb2

SHORT = "The boy is in the park."
LONG = "The boy is in the park and the girl is eating a green apple near the river. " * 20
METRICS = "monitoring/prometheus/metrics"


def request(texts: list[str]) -> bytes:
    """A request of texts to the signature `translate`."""
    made = serving_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = "load", "translate"
    made.inputs["text"].dtype = 7  # a string
    made.inputs["text"].tensor_shape.dim.add(size=len(texts))
    made.inputs["text"].string_val.extend(text.encode() for text in texts)
    return made.SerializeToString()


def connect(target: str) -> Callable:
    """Predict, over a connection of its own."""
    channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
    return channel.unary_unary("/tensorflow.serving.PredictionService/Predict")


def waits(target: str, expensive: int, texts: int, seconds: float) -> list[float]:
    """Seconds of short requests, next to `expensive` requests of many texts."""
    predict, other, stop = connect(target), connect(target), Event()
    long, short = request([LONG] * texts), request([SHORT])

    def send(_: object = None) -> None:
        if not stop.is_set():
            other.future(long, timeout=120).add_done_callback(send)

    for _ in range(expensive):
        send()
    time.sleep(1)
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        predict(short, timeout=120)
        found.append(time.perf_counter() - started)
        time.sleep(0.01)
    stop.set()
    return found


def in_flight(port: int) -> int:
    """How many requests run or wait on the server with this REST port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{METRICS}", timeout=60) as page:
        return int(re.search(rb"requests_in_flight (\d+)", page.read())[1])


def stopping(target: str, port: int, texts: int, times: int) -> list[float]:
    """Seconds from the cancellation of a run of many texts to its end."""
    predict, found = connect(target), []
    for number in range(times):
        while in_flight(port):
            time.sleep(0.05)
        call = predict.future(request([LONG] * texts), timeout=120)
        time.sleep(0.5 + 0.037 * number)  # anywhere in the server's rounds
        if not in_flight(port):
            raise SystemExit("error: a run ended before it was cancelled. Raise --cancelled-texts")
        call.cancel()
        started = time.perf_counter()
        while in_flight(port):
            time.sleep(0.005)
        found.append(time.perf_counter() - started)
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="base path of an exported translator")
    add("--expensive", type=int, nargs="+", default=[0, 1, 8, 64], help="requests at once")
    add("--expensive-texts", type=int, default=40, help="long texts of an expensive request")
    add("--seconds", type=float, default=6, help="for each number of expensive requests")
    add("--cancelled-texts", type=int, default=1000, help="long texts of a cancelled run")
    add("--cancelled", type=int, default=20, help="runs that are cancelled")
    add("--enable-batching", action="store_true", help="of the server")
    options = parser.parse_args()
    port, rows = free_port(), []
    flags = [f"--rest_api_port={port}"]
    if options.enable_batching:
        flags.append("--enable_batching=true")
    with server(options.model, *flags) as (target, _):
        for expensive in options.expensive:
            found = waits(target, expensive, options.expensive_texts, options.seconds)
            rows.append({"case": f"next to {expensive}", "seconds": found})
        if options.cancelled:
            found = stopping(target, port, options.cancelled_texts, options.cancelled)
            rows.append({"case": "until a cancelled run ends", "seconds": found})
    for row in rows:
        found = sorted(row.pop("seconds"))
        row |= {"count": len(found), "p50_ms": round(statistics.median(found) * 1e3, 1)}
        row |= {"p99_ms": round(found[len(found) * 99 // 100] * 1e3, 1)}
        row |= {"most_ms": round(found[-1] * 1e3, 1)}
        print(
            "{case:28} {count:5} times, p50 {p50_ms}, p99 {p99_ms}, most {most_ms} ms".format(**row)
        )
    print(json.dumps({"rows": rows, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
