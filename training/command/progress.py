"""Progress of long work on standard error: a bar on a terminal, otherwise a line now and then.

Only one bar is shown at a time: work inside other shown work has no bar.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from training.command.visible import visible

_EVERY = 30.0  # least seconds between two lines if there is no terminal
_showing = False

# Arguments: the name of the next stage, and the share of the total time that has usually passed.
ReportStage = Callable[..., None]


@contextmanager
def progress(total: int, unit: str) -> Iterator[Callable[..., None]]:
    """Show how much of some work is done; yield `report(count, **figures)`.

    Call `report` with the number of units done since the last call. A log line also shows the
    named figures and the time left. Nothing is written to standard output, so that results can be
    redirected to a file.
    """
    if sys.stderr.isatty():
        columns = "BarColumn", "MofNCompleteColumn", "TimeRemainingColumn"
        with _shown(unit, total, *columns) as update:
            yield lambda count, **figures: update(advance=count)
        return
    done, told = 0, time.monotonic()
    # time and count after the first call, when programs are compiled
    first: tuple[float, int] | None = None

    def tell(count: int, **figures: float) -> None:
        nonlocal done, told, first
        done, now = done + count, time.monotonic()
        if first is None:
            first = now, done
        elif now - told >= _EVERY and first[1] < done < total:
            told, pace = now, (now - first[0]) / (done - first[1])
            left = timedelta(seconds=round(pace * (total - done)))
            more = "".join(f", {name} {float(value):.4g}" for name, value in figures.items())
            print(f"{done:,} of {total:,} {unit}{more}, {left} left", file=sys.stderr, flush=True)

    yield tell


@contextmanager
def stages(first: str) -> Iterator[ReportStage]:
    """Show the current stage, at first `first`, the elapsed time, and the share that is done."""
    with _shown(first, None, "BarColumn", "TimeElapsedColumn") as update:
        yield lambda what, share=None: update(description=what, total=share and 1, completed=share)


def print_note(note: str, *, error: bool = False) -> None:
    """Print a message in which the user's texts may stand: invisible characters by their number.

    `error`: whether to print to standard error.
    """
    print(visible(note), file=sys.stderr if error else sys.stdout, flush=True)


def print_choice(name: str, chosen: str, way_out: str = "") -> None:
    """Print a row of the block of choices: a name, the choice, and the option that changes it."""
    kept = visible(chosen).replace("--set ", "--set\0")  # keep --set on one line with its key
    lines = textwrap.wrap(kept, 68, break_long_words=False, break_on_hyphens=False)
    for line in (line.replace("\0", " ") for line in lines):
        print(f"  {name:<10} {line:<68}  {way_out}".rstrip(), flush=True)
        name = way_out = ""


@contextmanager
def _shown(text: str, total: int | None, *columns: str) -> Iterator[Callable[..., None]]:
    """Show a text and columns of rich; yield `update`, which changes them.

    Without a terminal, `update` does nothing and rich is not imported.
    """
    global _showing
    if _showing or not sys.stderr.isatty():
        yield lambda **changes: None
        return
    from rich import progress as rich
    from rich.console import Console

    _showing = True
    try:
        with rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            *(getattr(rich, name)() for name in columns),
            console=Console(stderr=True),
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        ) as bar:
            yield partial(bar.update, bar.add_task(text, total=total))
    finally:
        _showing = False
