"""Progress of long work: a bar on standard error, where that is a terminal.

One bar is shown at a time: work within other work that is shown has none.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

_showing = False

# Takes the name of the next stage and the share of all time that has usually passed by now.
ReportStage = Callable[..., None]


@contextmanager
def progress(total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show how much of some work is done; yield a function to be called with how much more is.

    Nothing is written to standard output, so that results can be sent to a file; and nothing at
    all where standard error is no terminal.
    """
    if not _is_shown():
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with _shown(*columns) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def stages(first: str) -> Iterator[ReportStage]:
    """Show what is being done, `first` to begin with, for how long, and the share that is done."""
    if not _is_shown():
        yield lambda what, share=None: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description} …", markup=False)
    with _shown(TimeElapsedColumn(), BarColumn(), text) as bar:
        task = bar.add_task(first, total=None)

        def tell(what: str, share: float | None = None) -> None:
            bar.update(task, description=what, total=share and 1.0, completed=share)

        yield tell


def print_choice(name: str, chosen: str, way_out: str = "") -> None:
    """Print a row of the block that says what the program recognised and chose, and the way out."""
    kept = chosen.replace("--set ", "--set\0")  # on one line with its key
    lines = textwrap.wrap(kept, 68, break_long_words=False, break_on_hyphens=False)
    for line in (line.replace("\0", " ") for line in lines):
        print(f"  {name:<10} {line:<68}  {way_out}".rstrip(), flush=True)
        name = way_out = ""


def _is_shown() -> bool:
    """Whether a bar is to be seen; if not, rich is not imported."""
    return not _showing and sys.stderr.isatty()


@contextmanager
def _shown(*columns: ProgressColumn) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress

    global _showing
    _showing = True
    try:
        with Progress(
            *columns,
            console=Console(stderr=True),
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        ) as bar:
            yield bar
    finally:
        _showing = False
