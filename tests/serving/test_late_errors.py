"""Errors that come when nobody waits for them: asyncio must not log them, whenever it collects."""

import asyncio
import gc
import threading

import pytest
from starlette.requests import ClientDisconnect, Request

from serving.api._http import unless_gone
from serving.loaded._status import StatusError
from serving.server._calls import Metrics, Task, Workers
from tests.serving.conftest import call_of


def logged(main):
    """What the event loop logs while it runs `main()`, and when its futures are collected."""
    found = []

    async def run():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: found.append(context["message"]))
        await main()
        gc.collect()

    asyncio.run(run())
    return found


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_the_error_of_a_run_whose_client_or_time_has_gone_is_not_logged(is_cancelled):
    gate, has_begun, loop_thread = threading.Event(), threading.Event(), threading.current_thread()

    def fail(*_):
        has_begun.set()
        gate.wait(60)
        raise ZeroDivisionError

    def seconds_left():  # the deadline passes when the run has begun
        if is_cancelled or threading.current_thread() is not loop_thread:
            return 60.0
        assert has_begun.wait(60)
        return 0.0

    async def main():
        workers, call = Workers(1, 10, Metrics()), call_of(Task("k", fail, {}, dict))
        call.seconds_left = seconds_left
        waiting = asyncio.create_task(workers.run(call))
        await asyncio.to_thread(has_begun.wait, 60)
        if is_cancelled:
            waiting.cancel()
        await asyncio.wait([waiting])
        expected = asyncio.CancelledError if is_cancelled else StatusError
        with pytest.raises(expected):
            waiting.result()
        has_failed, loop = asyncio.Event(), asyncio.get_running_loop()
        call.response.add_done_callback(lambda _: loop.call_soon_threadsafe(has_failed.set))
        gate.set()
        await has_failed.wait()
        assert isinstance(call.response.exception(), ZeroDivisionError)

    assert logged(main) == []


@pytest.mark.parametrize("has_gone", [True, False])
def test_the_error_of_work_whose_client_has_gone_is_not_logged(has_gone):
    """Nor that of the connection when the work is done."""

    async def fail_at_its_end():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ZeroDivisionError from None

    async def receive():
        if has_gone:
            return {"type": "http.disconnect"}
        return await fail_at_its_end()

    async def answer():
        return "answer"

    async def main():
        request = Request({"type": "http"}, receive)
        if has_gone:
            with pytest.raises(ClientDisconnect):
                await unless_gone(request, fail_at_its_end())
        else:
            assert await unless_gone(request, answer()) == "answer"

    assert logged(main) == []
