"""A soak of the local server: python benchmarks/serving_soak.py --model models/NAME

Clients in processes of their own send texts until so many requests are answered, or so many seconds
have passed, while versions come and go below the base path, the configuration is reloaded, and
clients are killed in the middle of their requests. None of the answered requests may be wrong and
none may fail; memory, threads and files of the server are read ten times. Prints a table; the last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import grpc
from google.protobuf import text_format
from parts.local_server import free_port
from parts.memory import resident_megabytes

from serving.client import ServingError, Translator
from training.data import corpus

RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


def client(
    target: str, texts: list[str], counts: dict[str, Synchronized], enough: Synchronized
) -> None:
    """Send texts one by one; the answers to the first round are what the later ones must be."""
    draw = random.Random()
    expected: dict[str, str] = {}
    with Translator(target, "soak", timeout=60) as translator:
        while counts["answered"].value < enough.value:
            text = draw.choice(texts)
            try:
                found = translator.translate([text])[0].text
            except ServingError as error:
                print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
                with counts["failed"].get_lock():
                    counts["failed"].value += 1
                continue
            with counts["answered"].get_lock():
                counts["answered"].value += 1
            if expected.setdefault(text, found) != found:
                with counts["different"].get_lock():
                    counts["different"].value += 1


def versions_below(base: Path) -> dict[int, Path]:
    """Version directories by number."""
    return {int(path.name): path for path in base.iterdir() if path.name.isdecimal()}


def config(base: Path, versions: int) -> str:
    """ModelServerConfig of the base path."""
    return (
        f'model_config_list {{ config {{ name: "soak" base_path: "{base}" '
        f'model_platform: "tensorflow" model_version_policy {{ latest {{ num_versions: {versions} '
        "} } } }"
    )


class Operator:
    """Brings versions, takes them away, and reloads the configuration."""

    def __init__(self, source: Path, base: Path, target: str):
        self.source, self.base, self.target = source, base, target
        self.number, self.reloads, self.reloads_failed = 1, 0, 0
        self.slowest_reload = 0.0
        # It imports TensorFlow, which takes seconds: not in the clients, and not meanwhile.
        from tensorflow_serving.apis import model_management_pb2

        self._request = model_management_pb2.ReloadConfigRequest

    def add_version(self) -> None:
        """Copy aside, rename, and take away all but three."""
        aside = self.base / f"writing-{self.number}"
        shutil.copytree(self.source, aside, copy_function=os.link)
        aside.rename(self.base / str(self.number))
        self.number += 1
        for old in sorted(versions_below(self.base))[:-3]:
            shutil.rmtree(self.base / str(old))

    def reload(self) -> None:
        """One version, or two, by ModelService."""
        request = self._request()
        text_format.Parse(config(self.base, 1 + self.reloads % 2), request.config)
        started = time.perf_counter()
        try:
            with grpc.insecure_channel(self.target) as channel:
                channel.unary_unary(RELOAD)(request.SerializeToString(), timeout=300)
        except grpc.RpcError as error:
            print(f"reload failed: {error.code().name}: {error.details()}", file=sys.stderr)
            self.reloads_failed += 1
        self.reloads += 1
        self.slowest_reload = max(self.slowest_reload, time.perf_counter() - started)


def look(process: int) -> dict[str, float]:
    """Memory, threads and open files of a process."""
    return {
        "rss_mb": resident_megabytes(process),
        "threads": len(os.listdir(f"/proc/{process}/task")),
        "files": len(os.listdir(f"/proc/{process}/fd")),
    }


def soak(options: argparse.Namespace, texts: list[str], base: Path) -> dict:
    """Run it; what came of it."""
    source = max(versions_below(options.model.resolve()).items())[1]
    port = free_port()
    operator = Operator(source, base, f"localhost:{port}")
    operator.add_version()
    file = base / "models.config"
    file.write_text(config(base, 1))
    process = subprocess.Popen(
        [sys.executable, "-m", "serving.server", f"--port={port}", f"--model_config_file={file}"],
        stderr=subprocess.DEVNULL,
    )
    context = multiprocessing.get_context("spawn")
    names = ("answered", "failed", "different")
    counts: dict[str, Synchronized] = {name: context.Value("l", 0) for name in names}
    enough = context.Value("l", options.requests)
    arguments = (operator.target, texts, counts, enough)
    workers = [context.Process(target=client, args=arguments) for _ in range(options.clients)]
    rows, killed, draw = [], 0, random.Random(options.seed)
    stop = threading.Event()

    def operate() -> None:
        while not stop.wait(options.pause):
            operator.add_version()
            operator.reload()

    try:
        with Translator(operator.target, "soak") as translator:
            translator.wait_ready(120)
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        operating = threading.Thread(target=operate)
        operating.start()
        kill_at = time.perf_counter() + options.pause
        while counts["answered"].value < options.requests and process.poll() is None:
            time.sleep(0.2)
            answered = counts["answered"].value
            passed = time.perf_counter() - started
            if passed > options.seconds:
                break
            share = max(answered / options.requests, passed / options.seconds)
            if share >= len(rows) / 10:
                rows.append({"requests": answered, **look(process.pid)})
                print(rows[-1], file=sys.stderr)
            if time.perf_counter() > kill_at:
                index = draw.randrange(len(workers))
                # A worker that holds a counter's lock would leave it locked.
                with counts["answered"].get_lock(), counts["different"].get_lock():
                    workers[index].kill()
                workers[index].join()
                workers[index] = context.Process(target=client, args=arguments)
                workers[index].start()
                killed += 1
                kill_at = time.perf_counter() + options.pause
        took = time.perf_counter() - started
        stop.set()
        enough.value = 0
        operating.join()
        for worker in workers:
            worker.join(60)
        time.sleep(3)
        rows.append({"requests": counts["answered"].value, **look(process.pid)})
        died = process.poll() is not None
    finally:
        stop.set()
        for worker in workers:
            if worker.is_alive():
                worker.kill()
        process.terminate()
        process.wait()
    return {
        "rows": rows,
        **{name: value.value for name, value in counts.items()},
        "versions": operator.number - 1,
        "reloads": operator.reloads,
        "reloads_failed": operator.reloads_failed,
        "slowest_reload_seconds": round(operator.slowest_reload, 1),
        "clients_killed": killed,
        "seconds": round(took, 1),
        "server_died": died,
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="base path of an exported translator")
    add("--requests", type=int, default=200_000, help="answered requests after which it ends")
    add("--seconds", type=float, default=10_000, help="after which it ends too")
    add("--clients", type=int, default=8, help="processes that send")
    add("--pause", type=float, default=5, help="seconds between versions, reloads and kills")
    add("--seed", type=int, default=7, help="of the texts, and of who is killed")
    options = parser.parse_args()
    if not options.model.is_dir() or not versions_below(options.model):
        parser.error(f"{options.model} holds no version: expected a directory with 1/, 2/, ...")
    texts = corpus.load("phrasebook-en-fr", "test", limit=50, seed=options.seed).sources
    with tempfile.TemporaryDirectory(dir=options.model.parent) as base:
        found = soak(options, texts, Path(base).resolve())
    for row in found["rows"]:
        print("  ".join(f"{name} {value:>10}" for name, value in row.items()))
    print(json.dumps({**found, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
