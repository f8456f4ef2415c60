"""What the page asks of a model, by its kind: functions of a client and a request's body."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

from serving.client import Alignment, AsyncPredictor, AsyncReader, AsyncTranslator
from serving.client.errors import SignatureNotFoundError
from serving.client.events import TIME, parse_table
from serving.client.images import Regions
from serving.client.sentences import split_sentences
from serving.page import words
from serving.page.requests import Answer, BadRequestError

MOST_CHARACTERS = 5_000
MOST_SENTENCES = 64
MOST_EVENTS = 200  # of one history: each is asked with those before it
T = TypeVar("T")


async def translate(translator: AsyncTranslator, body: dict[str, Any]) -> Answer:
    """Translate a text, sentence by sentence: `{"text": …}`."""
    text = body.get("text")
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise BadRequestError(f"expected a text of at most {MOST_CHARACTERS:,} characters")
    pieces = split_sentences(text)
    if len(pieces) > MOST_SENTENCES:
        raise BadRequestError(
            f"expected at most {MOST_SENTENCES} sentences; received {len(pieces)}"
        )
    found = await translator.translate([piece for piece, _ in pieces])
    return {
        "sentences": [
            {"source": source, "gap": gap, **dataclasses.asdict(one)}
            for (source, gap), one in zip(pieces, found, strict=True)
        ]
    }


async def look(translator: AsyncTranslator, body: dict[str, Any]) -> Answer:
    """Say where the model looks, and what else it would say: `{"texts": [sentence, …]}`."""
    texts = body.get("texts")
    if (
        not isinstance(texts, list)
        or not 0 < len(texts) <= MOST_SENTENCES
        or not all(isinstance(text, str) for text in texts)
        or sum(map(len, texts)) > MOST_CHARACTERS
    ):
        raise BadRequestError(
            f"expected 1 to {MOST_SENTENCES} texts of at most {MOST_CHARACTERS:,} characters"
        )
    alignments, hypotheses = await asyncio.gather(
        _if_served(translator.align(texts)), _if_served(translator.nbest(texts))
    )
    return {
        "sentences": [
            {
                "alignment": _words(alignments[number]) if alignments else None,
                # A search that found fewer fills up with -inf.
                "hypotheses": [
                    dataclasses.asdict(one)
                    for one in (hypotheses or [[]] * len(texts))[number]
                    if one.score > -math.inf
                ],
            }
            for number in range(len(texts))
        ]
    }


async def read(reader: AsyncReader, image: bytes) -> Answer:
    """Say what stands in an image, and where the model looked for each token."""
    found = await _if_served(reader.regions([image]))
    (one,) = found or await reader.read([image])
    assert not isinstance(one, Exception)  # it is raised unless errors are asked for
    tokens, weights = (one.tokens, one.attention_weights) if isinstance(one, Regions) else ((), ())
    return {
        "text": one.text,
        "score": one.score,
        "tokens": tokens,
        "weights": [[_rounded(row) for row in grid] for grid in weights],
    }


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
        found = parse_table(table.splitlines(), whose, when)
        person = person if person in found else next(iter(found))
        history = found[person]
        count = len(history[TIME])
        if count > MOST_EVENTS:
            raise ValueError(f"expected at most {MOST_EVENTS} visits of one id; {count} are there")
        until = [{name: cells[: n + 1] for name, cells in history.items()} for n in range(count)]
        answers = await predictor.outcome(until, ignore=True)
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    return {
        "people": list(found),
        "person": person,
        "time": [float(time) for time in history[TIME]],
        "columns": {name: cells for name, cells in history.items() if name != TIME},
        "probabilities": _rounded(answer.probability for answer in answers),
        "weights": [_rounded(answer.attention_weights) for answer in answers],
    }


async def _if_served(answers: Coroutine[Any, Any, T]) -> T | None:
    """Return the answers, or None where the model has no such signature."""
    try:
        return await answers
    except SignatureNotFoundError:
        return None


def _words(alignment: Alignment) -> dict[str, Any]:
    """Return an alignment between words."""
    source, target, weights = words.join(
        alignment.source_tokens, alignment.target_tokens, alignment.attention_weights
    )
    return {"source": source, "target": target, "weights": [_rounded(row) for row in weights]}


def _rounded(numbers: Any) -> list[float]:
    return [round(number, 4) for number in numbers]
