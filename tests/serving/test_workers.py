"""Threads that answer requests: how many, who is refused, and what becomes of those who leave."""

import asyncio
import threading

import pytest

from serving.savedmodel.status import Code, StatusError
from serving.server.call import Call
from serving.server.workers import Workers


def threads(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
def held():
    """An event that ends what the tests have running, and a run that waits for it."""
    free = threading.Event()

    def work():
        free.wait(30)
        return 7

    yield free, work
    free.set()


def test_results_and_errors_come_back():
    def fail():
        raise StatusError(Code.NOT_FOUND, "gone")

    async def main():
        workers = Workers("results", 3, 11)
        squares = await asyncio.gather(*(workers.run(lambda n=n: n * n, Call()) for n in range(11)))
        assert squares == [n * n for n in range(11)]
        with pytest.raises(StatusError, match="gone"):
            await workers.run(fail, Call())
        assert workers.busy == 0
        assert len(threads("results")) <= 3
        workers.close()
        await until(lambda: not threads("results"))

    asyncio.run(main())


def test_threads_are_started_as_they_are_needed(held):
    free, work = held

    async def main():
        workers = Workers("needed", 3, 11)
        for _ in range(5):
            await workers.run(lambda: None, Call())
        assert len(threads("needed")) == 1
        runs = [asyncio.ensure_future(workers.run(work, Call())) for _ in range(5)]
        await until(lambda: len(threads("needed")) == 3)
        assert workers.busy == 5
        free.set()
        assert await asyncio.gather(*runs) == [7] * 5
        assert len(threads("needed")) == 3
        workers.close()

    asyncio.run(main())


def test_who_leaves_the_line_makes_room_at_once(held):
    free, work = held
    begun = []

    async def main():
        workers = Workers("leaves", 1, 2)
        first, second = Call(), Call()
        running = asyncio.ensure_future(workers.run(work, first))
        waiting = asyncio.ensure_future(workers.run(lambda: begun.append(2), second))
        await asyncio.sleep(0)
        with pytest.raises(StatusError, match="2 requests are waiting") as refused:
            await workers.run(lambda: begun.append(3), Call())
        assert refused.value.code == Code.RESOURCE_EXHAUSTED
        waiting.cancel()
        await asyncio.wait([waiting])
        with pytest.raises(StatusError, match="The client has gone"):
            second.check()
        assert workers.busy == 1
        last = asyncio.ensure_future(workers.run(lambda: begun.append(4), Call()))
        await asyncio.sleep(0.05)
        running.cancel()  # it has begun: it keeps its place until it ends
        await asyncio.wait([running])
        assert workers.busy == 2
        free.set()
        await last
        assert begun == [4]
        assert workers.busy == 0
        workers.close()

    asyncio.run(main())


def test_what_waits_is_cancelled_when_the_server_stops(held):
    free, work = held

    async def main():
        workers = Workers("stops", 1, 5)
        running = asyncio.ensure_future(workers.run(work, Call()))
        await until(lambda: threads("stops"))
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(workers.run(work, Call()))
        await asyncio.sleep(0)
        workers.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(StatusError) as refused:
            await workers.run(work, Call())
        assert refused.value.code == Code.UNAVAILABLE
        free.set()
        assert await running == 7
        await until(lambda: not threads("stops"))
        assert workers.busy == 0

    asyncio.run(main())


class Counted:
    """Counts those that are alive."""

    alive = 0

    def __init__(self):
        Counted.alive += 1

    def __del__(self):
        Counted.alive -= 1


def test_who_leaves_the_line_leaves_no_request_in_it(held):
    free, work = held

    async def main():
        workers = Workers("frees", 1, 3)
        running = asyncio.ensure_future(workers.run(work, Call()))
        for _ in range(11):
            request = Counted()
            waiting = asyncio.ensure_future(workers.run(lambda kept=request: kept, Call()))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            del request, waiting
        assert Counted.alive == 0
        free.set()
        assert await running == 7
        workers.close()

    asyncio.run(main())


def test_a_thread_that_waits_keeps_no_answer():
    async def main():
        workers = Workers("keeps", 1, 2)
        await workers.run(Counted, Call())
        await until(lambda: Counted.alive == 0)
        workers.close()

    asyncio.run(main())
