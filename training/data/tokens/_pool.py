"""Worker processes, which encode blocks of lines."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from training.command.errors import UserError

Run = Callable[[Callable[..., Any], Iterable[tuple]], Iterator[Any]]


@contextmanager
def workers(count: int) -> Iterator[Run]:
    """Start `count` worker processes; with 0, all calls run in this process.

    Yield `run(function, tasks)`, which calls the function with each tuple of arguments and yields
    the results in order. `run` takes a task only when a worker needs one. Raises UserError if a
    worker is killed.
    """
    if not count:
        yield lambda function, tasks: (function(*task) for task in tasks)
        return
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_initialize
    )

    def run(function: Callable[..., Any], tasks: Iterable[tuple]) -> Iterator[Any]:
        pending: deque[Future] = deque()
        for task in tasks:
            pending.append(pool.submit(function, *task))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    try:
        yield run
    except BrokenProcessPool:
        raise UserError(
            "A worker process was killed, probably because memory ran out. Close other programs "
            "and try again; training.prepare also takes --workers 1"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize() -> None:
    """Ignore Ctrl-C, which the parent process handles, and end when the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
