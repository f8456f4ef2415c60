"""Checks that a row has the same answer alone, in any batch, and in another runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from serving.api._printing import first_line
from serving.check._questions import Question, is_batched, make_inputs, questions
from serving.loaded._status import Code, StatusError

TOLERANCE = 1e-4
ROW_TOLERANCE = 1e-3  # between a row alone and in a batch, where sums have another order

Arrays = Mapping[str, np.ndarray]
Run = Callable[[str, Arrays], Arrays]  # runs the signature of a name on inputs


class Model(Protocol):
    """A loaded model."""

    signatures: dict[str, Any]

    def run(self, name: str, inputs: Arrays) -> Arrays:
        """Run a signature; raises StatusError."""


class _FindingError(Exception):
    """A finding, which ends the check of its signature."""


def _failure(what: str, error: Exception) -> _FindingError:
    """Return the finding that a run failed, whatever class of error the runtime raised."""
    code = f"{error.code.name}: " if isinstance(error, StatusError) else ""
    return _FindingError(f" {what}: {code}{first_line(error)}")


def check_answers(
    model: Model,
    names: Sequence[str],
    tell: Callable[[str, float], None],
    python: Run | None = None,
    tolerance: float = ROW_TOLERANCE,
) -> list[str]:
    """Find signatures that fail, mix rows, lose the batch axis or differ in Python: a line each."""

    def check(number: int) -> str | None:
        name = names[number]
        tell(f"asking for {name}", number / len(names))
        try:
            _Signature(model, name, python, tolerance).check()
        except _FindingError as finding:
            return f"signature {name}{finding}"
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [finding for finding in pool.map(check, range(len(names))) if finding]


@dataclass(frozen=True)
class _Signature:
    """The check of one signature; `tolerance` is between a row alone and in a batch."""

    model: Model
    name: str
    python: Run | None
    tolerance: float

    def check(self) -> None:
        """Run all questions. Raises _FindingError for the first fault."""
        for group in questions(self.model.signatures[self.name]):
            alone: list[Arrays] = []
            for question in group:
                # Python is slow to start: compare one row of a group with it, and all batches.
                is_one = len(question.rows) == 1
                outputs = self._run(question, compares=not (is_one and alone))
                if outputs is not None and is_one:
                    alone.append(outputs)
                elif outputs is not None and question.rows:
                    self._check_batch(question.what, alone, outputs)

    def _run(self, question: Question, compares: bool) -> Arrays | None:
        """Return the outputs for a question, checked for batch axis and NaN; None if rejected."""
        what, signature = question.what, self.model.signatures[self.name]
        inputs = make_inputs(signature, question.rows)
        try:
            outputs = self.model.run(self.name, inputs)
        except Exception as error:
            if _refuses(error, question):
                return None
            raise _failure(f"fails on {what}", error) from None
        if question.refusal:
            raise _FindingError(f" takes {what}; expected an error that has {question.refusal}")
        for alias, array in sorted(outputs.items()):
            if is_batched(signature) and array.shape[:1] != (len(question.rows),):
                raise _FindingError(
                    f", output {alias}: shape {array.shape} on {what}; the first dimension must be "
                    "the batch"
                )
            if np.any(array != array):  # only NaN differs from itself
                raise _FindingError(f", output {alias}: NaN on {what}")
        if self.python and compares:
            try:
                expected = self.python(self.name, inputs)
            except Exception as error:
                raise _failure(f"fails in Python on {what}", error) from None
            if other := different(outputs, expected):
                raise _FindingError(f", output {other}: not what Python answers on {what}")
        return outputs

    def _check_batch(self, what: str, alone: Sequence[Arrays], batch: Arrays) -> None:
        """Compare the answer of each row in a batch with its answer alone."""
        wrong: dict[int, str] = {}
        for alias, array in sorted(batch.items()):
            rows = [outputs[alias][0, ...] for outputs in alone[: len(array)]]
            differing = [n for n, row in enumerate(rows) if not self._same(array[n, ...], row)]
            wrong = {**dict.fromkeys(differing, alias), **wrong}
            moved = [n for n in differing if any(self._same(array[n, ...], row) for row in rows)]
            if len(moved) > 1:
                raise _FindingError(
                    f", output {alias}: rows are in another order on {what}: row {moved[0]} is not "
                    "the answer to its input"
                )
        # Rounding may swap two hypotheses of nearly equal scores: a sixth of the rows may differ.
        dtypes = {array.dtype == object for array in batch.values()}
        if len(wrong) > (max(1, len(alone) // 6) if len(dtypes) == 2 else 0):
            number, alias = min(wrong.items())
            raise _FindingError(
                f", output {alias}: row {number} of {what} changes when it is sent alone. The "
                "model mixes the rows of a batch"
            )

    def _same(self, row: np.ndarray, other: np.ndarray) -> bool:
        """Return whether two rows are equal apart from padding, which depends on the batch."""
        if row.ndim != other.ndim:
            return False
        sizes = zip(row.shape, other.shape, strict=True)
        common: tuple[Any, ...] = (*(slice(min(both)) for both in sizes), ...)
        for array in (row, other):
            if _count_filled(array) != _count_filled(array[common]):
                return False
        row, other = row[common], other[common]
        if np.issubdtype(row.dtype, np.inexact):
            return np.allclose(row, other, rtol=self.tolerance, atol=self.tolerance)
        return bool(np.all(row == other))


def _refuses(error: Exception, question: Question) -> bool:
    """Return whether an error is the rejection that the question allows or expects."""
    invalid = isinstance(error, StatusError) and error.code is Code.INVALID_ARGUMENT
    return invalid and question.refusal is not None and question.refusal in str(error)


def _count_filled(array: np.ndarray) -> int:
    """Count the elements that are not padding."""
    return int(np.count_nonzero(array != (b"" if array.dtype == object else 0)))


def different(outputs: Arrays, expected: Arrays, ties: bool = True) -> str | None:
    """Return the name of the first output that differs, or None.

    With `ties`, texts may differ if all numbers agree: two hypotheses whose scores differ only in
    the last bit may come in either order.
    """
    aliases = sorted(outputs)
    if shapes := [x for x in aliases if outputs[x].shape != expected[x].shape]:
        return shapes[0]
    inexact = [x for x in aliases if np.issubdtype(outputs[x].dtype, np.inexact)]
    close: dict[str, Any] = {"rtol": TOLERANCE, "atol": TOLERANCE, "equal_nan": True}
    for alias in inexact:
        if not np.allclose(outputs[alias], expected[alias], **close):
            return alias
    exact = [] if inexact and ties else [x for x in aliases if x not in inexact]
    return next((x for x in exact if (outputs[x] != expected[x]).any()), None)
