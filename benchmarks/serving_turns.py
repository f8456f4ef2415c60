"""The model server in turns with that of another checkout, or with one of another export.

    git worktree add BEFORE fe9a10e
    python benchmarks/serving_turns.py --tree BEFORE --model models/NAME
    python benchmarks/serving_turns.py --beside models/SAVED --model models/ONNX

Both serve the same translator. One client asks one and then the other, request for request; many
clients ask each for some seconds. Of each goes with it when it was ready, and its resident memory
after all. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from parts.load import TIMEOUT, Load, crowd
from parts.local_server import server
from parts.memory import resident_megabytes

from serving.client import AsyncTranslator
from training.data import corpus

_SHOWN = ("ms", "per_second", "ready_s", "rss_mb")
ROOT = Path(__file__).parent.parent
SERVERS = ("the other", "this one")


async def alternate(loads: list[Load], translators: list[AsyncTranslator], requests: int) -> float:
    """Send requests to both servers by turns; how many times as long the second takes."""
    counts = [len(load.seconds) for load in loads]
    for number in range(requests):
        order = (0, 1) if number % 2 else (1, 0)
        for each in order:
            await loads[each].send(translators[each], number, time.perf_counter())
    before, after = (
        statistics.median(load.seconds[count:]) for load, count in zip(loads, counts, strict=True)
    )
    return after / before


async def rate(load: Load, translator: AsyncTranslator, clients: int, seconds: float) -> float:
    """Requests a second that are answered while so many clients ask."""
    count, started = len(load.seconds), time.perf_counter()
    await crowd(load, translator, clients, seconds)
    return (len(load.seconds) - count) / (time.perf_counter() - started)


async def measure(options: argparse.Namespace, targets: list[str], texts: list[str]) -> dict:
    """Figures of both servers, and those of this one divided by the other's."""
    async with (
        AsyncTranslator(targets[0], "load", timeout=TIMEOUT, retries=0) as before,
        AsyncTranslator(targets[1], "load", timeout=TIMEOUT, retries=0) as after,
    ):
        translators = [before, after]
        expected = await before.translate(texts)
        alone = [Load(texts, expected) for _ in SERVERS]
        crowded = [Load(texts, expected) for _ in SERVERS]
        await alternate([Load(texts, expected) for _ in SERVERS], translators, options.requests)
        waits, rates = [], []
        for number in range(options.repeat):
            waits.append(await alternate(alone, translators, options.requests))
            found = {}
            for each in (0, 1) if number % 2 else (1, 0):
                found[each] = await rate(
                    crowded[each], translators[each], options.clients, options.seconds
                )
            rates.append((found[0], found[1]))
    rows = {
        name: {
            "ms": 1000 * statistics.median(alone[each].seconds),
            "per_second": statistics.median(pair[each] for pair in rates),
            "errors": alone[each].errors + crowded[each].errors,
            "different": alone[each].different + crowded[each].different,
        }
        for each, name in enumerate(SERVERS)
    }
    rows["ratio, median of rounds"] = {
        "ms": statistics.median(waits),
        "per_second": statistics.median(after / before for before, after in rates),
    }
    return rows


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", type=Path, required=True, help="base path of a translator")
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument("--tree", type=Path, help="the other checkout")
    other.add_argument("--beside", type=Path, help="base path of the other export")
    parser.add_argument("--repeat", type=int, default=20, help="rounds")
    parser.add_argument("--requests", type=int, default=200, help="of one client, in each")
    parser.add_argument("--clients", type=int, default=32, help="of many clients")
    parser.add_argument("--seconds", type=float, default=2, help="that they ask, in each")
    options = parser.parse_args()
    texts = corpus.load("phrasebook-en-fr", "test", limit=100).sources
    ready, started = [], time.perf_counter()
    with server(options.beside or options.model, tree=options.tree or ROOT) as (before, first):
        ready.append(time.perf_counter() - started)
        started = time.perf_counter()
        with server(options.model, tree=ROOT) as (after, second):
            ready.append(time.perf_counter() - started)
            rows = asyncio.run(measure(options, [before, after], texts))
            megabytes = [resident_megabytes(process) for process in (first, second)]
    for name, seconds, memory in zip(SERVERS, ready, megabytes, strict=True):
        rows[name] |= {"ready_s": seconds, "rss_mb": memory}
    print(f"{'':25}{'ms':>9}{'a second':>10}{'ready, s':>10}{'MB':>9}")
    for name, row in rows.items():
        print(f"{name:25}" + "".join(f"{row[x]:10.3f}" for x in _SHOWN if x in row))
    print(json.dumps({"rows": rows, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
