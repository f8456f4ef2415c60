"""Worker processes for long work on text, which import its function alone."""

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
    """Start so many processes; for 0 all is done in this one.

    Yields:
        A function that calls another in them with each of some tuples of arguments, and yields what
        it returns, in order. The tuples are taken as they are needed.

    Raises:
        UserError: if one of them is killed.
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
            "a worker process was killed: where memory is short, take fewer with --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize() -> None:
    """End with the process that started this one, and leave interruptions to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
