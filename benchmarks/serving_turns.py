"""The model server in turns with that of another checkout.

    git worktree add BEFORE fe9a10e
    python benchmarks/serving_turns.py --tree BEFORE --model models/NAME

Both serve the same translator. One client asks one and then the other, request for request; many
clients ask each for some seconds. The last line is JSON.
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

from serving.client import AsyncTranslator
from training import phrasebook

ROOT = Path(__file__).parent.parent
TREES = ("that checkout", "this one")


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
    """Figures of both servers, and those of this checkout's divided by the other's."""
    async with (
        AsyncTranslator(targets[0], "load", timeout=TIMEOUT, retries=0) as before,
        AsyncTranslator(targets[1], "load", timeout=TIMEOUT, retries=0) as after,
    ):
        translators = [before, after]
        expected = await before.translate(texts)
        alone = [Load(texts, expected) for _ in TREES]
        crowded = [Load(texts, expected) for _ in TREES]
        await alternate([Load(texts, expected) for _ in TREES], translators, options.requests)
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
        for each, name in enumerate(TREES)
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
    parser.add_argument("--tree", type=Path, required=True, help="the other checkout")
    parser.add_argument("--repeat", type=int, default=20, help="rounds")
    parser.add_argument("--requests", type=int, default=200, help="of one client, in each")
    parser.add_argument("--clients", type=int, default=32, help="of many clients")
    parser.add_argument("--seconds", type=float, default=2, help="that they ask, in each")
    options = parser.parse_args()
    texts = [sample.source for sample in phrasebook.generate("en-fr", "test", 100)]
    base = options.model
    with server(base, tree=options.tree) as (before, _), server(base, tree=ROOT) as (after, _):
        rows = asyncio.run(measure(options, [before, after], texts))
    print(f"{'':25}{'ms':>9}{'a second':>10}")
    for name, row in rows.items():
        print(f"{name:25}{row['ms']:9.3f}{row['per_second']:10.3f}")
    print(json.dumps({"rows": rows, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
