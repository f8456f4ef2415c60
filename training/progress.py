"""How far long work has got: a bar on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress(total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show how much of some work is done, and how long the rest takes.

    Nothing is written to standard output, so that results can be sent to a file; and nothing at
    all where standard error is no terminal.

    Args:
        total: how much there is to do; None where that is not known.
        unit: what is counted, in the plural.

    Yields:
        A function to be called with how much more is done.
    """
    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _bar(*columns) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def stages(first: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done and for how long, as `progress` does where there is no count.

    Args:
        first: what is done first.

    Yields:
        A function to be called with what is done next.
    """
    text = TextColumn("{task.description} …", markup=False)
    with _bar(TimeElapsedColumn(), text) as bar:
        task = bar.add_task(first, total=None)
        yield lambda what: bar.update(task, description=what)


def _bar(*columns: ProgressColumn) -> Progress:
    return Progress(
        *columns,
        console=Console(stderr=True),
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
