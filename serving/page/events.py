"""The page's questions to a model of histories."""

from __future__ import annotations

import io
from typing import Any

from serving.client import AsyncPredictor
from serving.client.histories import TIME, parse_table
from serving.page.requests import Answer, BadRequestError, rounded

MOST_EVENTS = 200  # of one history: each is asked with those before it


async def follow(predictor: AsyncPredictor, body: dict[str, Any]) -> Answer:
    """Say how probable the outcome is after each event of a history.

    The body is `{"table": CSV with a row for each visit, "id": column, "time": column, "person":
    whose history, or "" for the first}`.
    """
    given = [body.get(key) for key in ("table", "id", "time", "person")]
    if not all(isinstance(value, str) for value in given):
        raise BadRequestError("expected table, id, time and person, all text")
    table, whose, when, person = map(str, given)
    try:
        found = parse_table(io.StringIO(table, newline=""), whose, when)
        person = person if person in found else next(iter(found))
        history = found[person]
        count = len(history[TIME])
        if count > MOST_EVENTS:
            raise ValueError(f"expected at most {MOST_EVENTS} visits of one id. Received: {count}")
        until = [{name: cells[: n + 1] for name, cells in history.items()} for n in range(count)]
        answers = await predictor.outcome(until, ignore=True)
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    return {
        "people": list(found),
        "person": person,
        "time": [float(time) for time in history[TIME]],
        "columns": {name: cells for name, cells in history.items() if name != TIME},
        "probabilities": rounded(answer.probability for answer in answers),
        "weights": [rounded(answer.attention_weights) for answer in answers],
    }
