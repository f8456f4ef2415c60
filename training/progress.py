"""How far long work has got: a bar on standard error, where that is a terminal.

One is shown at a time: what is done within other work that is shown has no bar of its own.
"""

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

_showing = False


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
    with _shown(*columns) as bar:
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
    with _shown(TimeElapsedColumn(), text) as bar:
        task = bar.add_task(first, total=None)
        yield lambda what: bar.update(task, description=what)


@contextmanager
def _shown(*columns: ProgressColumn) -> Iterator[Progress]:
    global _showing
    outer, _showing = _showing, True
    try:
        with Progress(
            *columns,
            console=Console(stderr=True),
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
            disable=outer or not sys.stderr.isatty(),
        ) as bar:
            yield bar
    finally:
        _showing = outer
