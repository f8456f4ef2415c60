"""Answers one input, in a worker process of any engine.

A worker may die at any moment, and a job may be started twice. So an output is written aside and
renamed when it is whole, and a present output is not made again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from serving.batch import files
from serving.batch.kinds import Item, Kind, Texts
from training.command.errors import UserError
from training.command.files import replacing

# A model: from values to the fields of each answer, or a ValueError.
Answers = Callable[[Sequence[Any]], Sequence[Any]]
MANIFEST = "job.json"
ASIDE = ".writing"


class JobError(UserError):
    """A job that cannot be done as asked."""


@dataclass(frozen=True)
class Job:
    """The settings of a job, the same in all workers; they decide the output."""

    model: Path
    output: Path
    kind: Kind = field(default_factory=Texts)
    batch_size: int = 64


@dataclass(frozen=True)
class Done:
    """A worker's report on a file; lines are 0 where the output was there already."""

    file: str
    lines: int = 0
    bad: int = 0
    truncated: int = 0
    was_there: bool = False


def start(job: Job) -> None:
    """Make the output folder, with a manifest of the model.

    Raises:
        JobError: if it holds the translations of another model or field.
    """
    job.output.mkdir(parents=True, exist_ok=True)
    manifest = job.output / MANIFEST
    own = {"model": str(job.model), "graph": _digest(job.model), "field": job.kind.field}
    if not manifest.is_file():
        with _aside(manifest) as file:
            file.write(json.dumps(own, indent=1).encode() + b"\n")
    try:
        other = json.loads(manifest.read_text(encoding="utf-8"))
        differs = [key for key in ("graph", "field") if other.get(key) != own[key]]
    except (ValueError, AttributeError):
        raise JobError(f"{manifest} cannot be read: choose another --output") from None
    if differs:
        what = "another model" if "graph" in differs else f"the field {other.get('field')!r}"
        raise JobError(f"{job.output} holds translations of {what}: choose another --output")


def answer_file(job: Job, model: Answers, path: Path) -> Done:
    """Answer all items of an input, unless its output is there.

    The output has a JSON object for each line, in order: `translation`, `score`, `truncated` where
    the text was longer than the model reads, `model_version`, and for JSON lines what else the line
    had. An image has its file's name with `text` and `score`, a history its id with `probability`.
    An item that cannot be read has `error` in their place.
    """
    final = files.target(path, job.output)
    if final.exists():
        return Done(path.name, was_there=True)
    lines = bad = truncated = 0
    with _aside(final) as written:
        for item in _answered(job, model, path):
            if item.error:
                item.record["error"] = item.error
            text = json.dumps(item.record, ensure_ascii=False)
            written.write(text.encode("utf-8", "replace") + b"\n")
            lines += 1
            bad += bool(item.error)
            truncated += item.record.get("truncated", False)
    return Done(path.name, lines, bad, truncated)


def sweep(job: Job) -> None:
    """Remove leftovers of dead workers beside whole files."""
    for aside in job.output.glob(f".*{ASIDE}"):
        name = aside.name.removesuffix(ASIDE).rpartition(".")[0].removeprefix(".")
        if (job.output / name).exists():
            aside.unlink(missing_ok=True)


def summary(job: Job, reports: Sequence[Done], seconds: float) -> dict[str, Any]:
    """Return the totals of a job."""
    totals = {k: sum(getattr(x, k) for x in reports) for k in ("lines", "bad", "truncated")}
    return {
        "output": str(job.output),
        "model": str(job.model),
        "files": len(reports),
        "were_there": sum(report.was_there for report in reports),
        **totals,
        "seconds": round(seconds, 1),
        "lines_per_second": round(totals["lines"] / seconds, 1) if seconds else 0.0,
    }


def _answered(job: Job, model: Answers, path: Path) -> Iterator[Item]:
    """Yield the items of an input, with their answers."""
    source = job.kind.items(path)
    while window := list(itertools.islice(source, max(job.kind.window, job.batch_size))):
        good = [item for item in window if not item.error]
        good.sort(key=lambda item: job.kind.size(item.value))
        for first in range(0, len(good), job.batch_size):
            _answer(job, model, good[first : first + job.batch_size])
        yield from window


def _answer(job: Job, model: Answers, batch: Sequence[Item]) -> None:
    """Add the answers to items."""
    answers = model([item.value for item in batch])
    for item, answer in zip(batch, answers, strict=True):
        if isinstance(answer, ValueError):
            item.error = str(answer)
        else:
            item.record.update(answer, model_version=job.model.name)


@contextmanager
def _aside(final: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name when all is written."""
    own = final.with_name(f".{final.name}.{uuid.uuid4().hex}{ASIDE}")
    with replacing(final, own) as aside, files.opened(aside, "wb", final.suffix == ".gz") as file:
        yield file


def _digest(model: Path) -> str:
    """Tell one model from another by its graph and its table of variables."""
    digest = hashlib.sha256()
    for name in ("saved_model.pb", "variables/variables.index"):
        file = model / name
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()
