"""Requests that clients send to a server, and their answers and times."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence

from serving.client import AsyncTranslator, ServingError, Translation

TIMEOUT = 120.0


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
            (found,) = await translator.translate([self.texts[index]])
        except ServingError:
            self.errors += 1
            return
        self.seconds.append(time.perf_counter() - since)
        wanted = self.expected[index]
        # Rows of a batch are summed in another order than a row alone.
        same_score = abs(found.score - wanted.score) < 1e-3
        self.different += found.text != wanted.text or not same_score

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


async def crowd(load: Load, translator: AsyncTranslator, clients: int, seconds: float) -> None:
    """`clients` that send requests for so long, each the next one when it has its answer."""
    end = time.perf_counter() + seconds
    numbers = itertools.count()

    async def client() -> None:
        while time.perf_counter() < end:
            await load.send(translator, next(numbers), time.perf_counter())

    await asyncio.gather(*(client() for _ in range(clients)))
