"""Load on the local model server: python benchmarks/serving_load.py --model models/NAME

A model is a SavedModel or an ONNX export; with --beside of another export both take turns, each
with a server of its own. Sends one text a request to the signature `translate` of an exported
translator, closed loop (each client sends its next request when it has its answer) and open loop
(requests arrive at random times, whether or not the earlier ones are answered), and beside a client
that sends texts of 10,000 words, without and with batching; one client takes turns with calls of
the same model in this process. When the server was ready, and its resident memory then and at the
end, go with it. Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import psutil
from parts.local_server import server

from serving.api._versions import find_versions
from serving.client import AsyncTranslator, ServingError, Translation
from training.data.read import texts as corpus

BATCHING = """
max_batch_size { value: %d }
batch_timeout_micros { value: %d }
max_enqueued_batches { value: 100 }
num_batch_threads { value: %d }
"""
LONG = " ".join(["The green apple is on the table."] * 1429)  # 10,003 words

TIMEOUT = 120.0

Ask = Callable[[str], Translation]


class Load:
    """Outcomes of requests: seconds of each, errors, and answers that are not the bare call's."""

    def __init__(self, texts: Sequence[str], expected: Sequence[Translation]):
        self.texts, self.expected = texts, expected
        self.seconds: list[float] = []
        self.errors = self.different = 0
        self.took = 0.0

    async def send(self, translator: AsyncTranslator, number: int, since: float) -> None:
        """Send request `number`; its time counts from `since`."""
        index = number % len(self.texts)
        try:
            (answer,) = await translator.translate([self.texts[index]])
        except ServingError:
            self.errors += 1
            return
        self.seconds.append(time.perf_counter() - since)
        wanted = self.expected[index]
        # Rows of a batch are summed in another order than a row alone.
        same_score = abs(answer.score - wanted.score) < 1e-3
        self.different += answer.text != wanted.text or not same_score

    def report(self, name: str) -> dict[str, float | str]:
        """One line of the table."""
        cuts = statistics.quantiles(self.seconds, n=100, method="inclusive")
        milliseconds = {f"p{p}_ms": round(cuts[p - 1] * 1e3, 2) for p in (50, 95, 99)}
        return {
            "load": name,
            "requests": len(self.seconds) + self.errors,
            "errors": self.errors,
            "different": self.different,
            **milliseconds,
            "per_second": round(len(self.seconds) / self.took, 1),
        }


@contextlib.contextmanager
def opened(base: Path) -> Iterator[Ask]:
    """A model's last version in this process: a function from a text to its translation."""
    version = max(find_versions(base).items())[1]
    if (version / "manifest.json").is_file():
        from serving.portable.read import LocalTranslator

        translator = LocalTranslator(version)
        yield lambda text: translator.translate([text])[0]
        return
    from serving.loaded.saved_model import ModelSession

    with ModelSession(version) as session:

        def ask(text: str) -> Translation:
            outputs = session.run("translate", {"text": [text]})
            text = outputs["translation"][0].decode("utf-8", "replace")
            return Translation(text, outputs["score"][0], bool(outputs["truncated"][0]))

        yield ask


def run(load: Load, target: str, work: Callable[[AsyncTranslator], Coroutine]) -> Load:
    """Carry out `work` with a client."""

    async def main() -> None:
        async with AsyncTranslator(target, "load", timeout=TIMEOUT, retries=0) as translator:
            await translator.translate(load.texts[:1])
            started = time.perf_counter()
            await work(translator)
            load.took = time.perf_counter() - started

    asyncio.run(main())
    return load


def in_turns(load: Load, target: str, ask: Ask, requests: int) -> Load:
    """One client that sends `requests`; before each, the bare call, whose times are returned."""
    alone = Load(load.texts, load.expected)

    async def work(translator: AsyncTranslator) -> None:
        for number in range(requests):
            started = time.perf_counter()
            ask(load.texts[number % len(load.texts)])
            alone.seconds.append(time.perf_counter() - started)
            await load.send(translator, number, time.perf_counter())

    run(load, target, work)
    load.took, alone.took = sum(load.seconds), sum(alone.seconds)
    return alone


def closed(load: Load, target: str, clients: int, requests: int) -> Load:
    """`clients` that send `requests` in all, each the next one when it has its answer."""

    async def work(translator: AsyncTranslator) -> None:
        numbers = iter(range(requests))

        async def client() -> None:
            for number in numbers:
                await load.send(translator, number, time.perf_counter())

        await asyncio.gather(*(client() for _ in range(clients)))

    return run(load, target, work)


def open_loop(load: Load, target: str, rate: float, requests: int, seed: int) -> Load:
    """Requests at random times, `rate` a second on average (a Poisson process)."""

    async def work(translator: AsyncTranslator) -> None:
        draw = random.Random(seed)
        due, sent = time.perf_counter(), []
        for number in range(requests):
            due += draw.expovariate(rate)
            await asyncio.sleep(due - time.perf_counter())
            sent.append(asyncio.create_task(load.send(translator, number, due)))
        await asyncio.gather(*sent)

    return run(load, target, work)


def beside_long(load: Load, target: str, requests: int) -> Load:
    """One client that sends `requests`, while another sends long texts, one after the other."""

    async def work(translator: AsyncTranslator) -> None:
        async def send_long() -> None:
            while True:
                await translator.translate([LONG])

        other = asyncio.create_task(send_long())
        try:
            for number in range(requests):
                await load.send(translator, number, time.perf_counter())
                if other.done():  # only an error ends it
                    other.result()
        finally:
            other.cancel()

    return run(load, target, work)


def measure(options: argparse.Namespace, texts: Sequence[str]) -> list[dict]:
    """All measurements, one dict a line."""
    rows = []
    with (
        contextlib.ExitStack() as stack,
        tempfile.NamedTemporaryFile("w", suffix=".config") as parameters,
    ):
        bases = [options.model, *filter(None, [options.beside])]
        models = [(base, stack.enter_context(opened(base))) for base in bases]
        values = options.max_batch_size, options.batch_timeout_micros, options.batch_threads
        parameters.write(BATCHING % values)
        parameters.flush()
        batching = ["--enable_batching=true", f"--batching_parameters_file={parameters.name}"]
        for name, flags in (("no batching", []), ("batching", batching)):
            for base, ask in models:
                where = f"{base.name}, {name}" if options.beside else name
                rows += measure_server(options, base, ask, texts, where, flags)
    return rows


def measure_server(
    options: argparse.Namespace,
    base: Path,
    ask: Ask,
    texts: Sequence[str],
    name: str,
    flags: list[str],
) -> list[dict]:
    """The measurements of one model with one setting."""
    expected, rows, began = [ask(text) for text in texts], [], time.perf_counter()

    def report(name: str, load: Load, **more: float) -> None:
        rows.append({**load.report(name), **more})

    with server(base.resolve(), *flags, tree=options.tree) as (target, process):
        times, memory = psutil.Process(process).cpu_times, psutil.Process(process).memory_info
        ready = {"ready_s": round(time.perf_counter() - began, 1)}
        ready["rss_ready_mb"] = round(memory().rss / 2**20, 1)
        single = Load(texts, expected)
        alone = in_turns(single, target, ask, options.requests)
        report(f"{name}, 1 client", single)
        report("  in turns with a bare call", alone)
        beside = beside_long(Load(texts, expected), target, options.requests)
        report(f"{name}, 1 client, long texts beside", beside)
        spent = sum(times()[:2])
        many = closed(Load(texts, expected), target, options.clients, options.requests)
        spent = (sum(times()[:2]) - spent) / options.requests
        report(f"{name}, {options.clients} clients", many, server_cpu_ms=round(spent * 1e3, 2))
        rate = 0.7 * len(many.seconds) / many.took
        arriving = open_loop(Load(texts, expected), target, rate, options.requests, options.seed)
        report(f"{name}, open loop at {rate:.0f}/s", arriving)
        rows[0] |= {**ready, "rss_last_mb": round(memory().rss / 2**20, 1)}
    return rows


def print_table(rows: Sequence[dict]) -> None:
    """Print the measurements."""
    columns = ["requests", "errors", "different", "p50_ms", "p95_ms", "p99_ms", "per_second"]
    print(f"{'':44}" + "".join(f"{column:>11}" for column in columns))
    for row in rows:
        print(f"{row['load']:44}" + "".join(f"{row[column]:>11}" for column in columns))
        if "ready_s" in row:
            resident = f"resident {row['rss_ready_mb']} MB, {row['rss_last_mb']} after all"
            print(f"{'':44}  ready after {row['ready_s']} s, {resident}")
        if "server_cpu_ms" in row:
            print(f"{'':44}  processor time of the server {row['server_cpu_ms']} ms a request")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="base path of an exported translator")
    add("--beside", type=Path, help="base path of another export of it")
    add("--tree", type=Path, help="checkout whose server is measured; default: this one")
    add("--texts", type=Path, help="file of texts, one a line; default: English of the phrasebook")
    add("--requests", type=int, default=1000, help="requests of each measurement")
    add("--clients", type=int, default=32, help="concurrent clients")
    add("--max-batch-size", type=int, default=16, help="requests in a batch: clients / threads")
    add("--batch-timeout-micros", type=int, default=20000, help="how long a batch waits to fill")
    add("--batch-threads", type=int, default=os.cpu_count(), help="batches that run at once")
    add("--seed", type=int, default=7, help="of the texts drawn and the arrival times")
    options = parser.parse_args()
    for base in filter(None, [options.model, options.beside]):
        if not (base.is_dir() and find_versions(base)):
            parser.error(f"{base} holds no version: expected a directory with 1/, 2/, ...")
    if options.texts:
        texts = options.texts.read_text(encoding="utf-8").splitlines()
        random.Random(options.seed).shuffle(texts)
        texts = texts[:500]
    else:
        texts = corpus.load("phrasebook-en-fr", "test", limit=200, seed=options.seed).sources
    rows = measure(options, texts)
    print_table(rows)
    print(json.dumps({"rows": rows, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
