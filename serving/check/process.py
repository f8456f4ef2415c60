"""The process of a check: it prints its steps and its findings."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.client.printing import printable
from training.command.progress import Tell


def first_line(error: Exception) -> str:
    """The first line of an error, or its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def answer(check: Callable[[Tell], dict[str, Any]]) -> None:
    """Run a check, and print a JSON object a line.

    `{"stage": …, "share": …}` comes before each step, with the usual share of time until then. The
    check's result, `{"findings": […]}`, comes at the end.
    """
    # A model that takes all memory must end this process, and no other.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    # Prints of the runtime and of the model must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**line: object) -> None:
        print(json.dumps(line), file=answers, flush=True)

    def tell(stage: str, share: float | None = None) -> None:
        say(stage=printable(stage), share=share)

    say(**check(tell))
