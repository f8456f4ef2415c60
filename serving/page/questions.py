"""The page's questions to translators, readers of images or other files, models of histories."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import Collection
from typing import Any

from serving.client import Alignment, AsyncPredictor, AsyncReader, AsyncTranslator, Regions
from serving.client.file_kinds import kind_of_inputs
from serving.client.histories import TIME, parse_table
from serving.client.results import split_sentences
from serving.page import words
from serving.page.requests import Answer, BadRequestError, found_hypotheses, if_served, rounded

MOST_CHARACTERS = 5_000
MOST_SENTENCES = 64
MOST_EVENTS = 200  # of one history: each is asked with those before it


async def translate(translator: AsyncTranslator, body: dict[str, Any]) -> Answer:
    """Translate a text, sentence by sentence: `{"text": …}`."""
    text = body.get("text")
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise BadRequestError(f"expected a text of at most {MOST_CHARACTERS:,} characters")
    pieces = split_sentences(text)
    if len(pieces) > MOST_SENTENCES:
        raise BadRequestError(
            f"expected at most {MOST_SENTENCES} sentences. Received: {len(pieces)}"
        )
    translations = await translator.translate([piece for piece, _ in pieces])
    return {
        "sentences": [
            {"source": source, "gap": gap, **dataclasses.asdict(translation)}
            for (source, gap), translation in zip(pieces, translations, strict=True)
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
        if_served(translator.align(texts)), if_served(translator.nbest(texts))
    )
    return {
        "sentences": [
            {
                "alignment": _words(alignments[number]) if alignments else None,
                "hypotheses": found_hypotheses(hypotheses[number] if hypotheses else []),
            }
            for number in range(len(texts))
        ]
    }


def _words(alignment: Alignment) -> dict[str, Any]:
    """Return an alignment between words."""
    source, target, weights = words.join(
        alignment.source_tokens, alignment.target_tokens, alignment.attention_weights
    )
    return {"source": source, "target": target, "weights": [rounded(row) for row in weights]}


def described(inputs: Collection[str]) -> dict[str, Any]:
    """Return what the page says of the files that the signature `read` with these inputs takes."""
    kind = kind_of_inputs(inputs)
    return {"name": kind.name, "endings": kind.endings}


async def read(reader: AsyncReader, contents: bytes) -> Answer:
    """Say what a file reads, how sure each token is and where it was seen, and other texts."""
    try:
        regions, others = await asyncio.gather(
            if_served(reader.regions([contents])), if_served(reader.nbest([contents]))
        )
        (reading,) = regions or await reader.read([contents])
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    assert not isinstance(reading, Exception)  # it is raised unless `keep_errors`
    (hypotheses,) = others or [[]]
    assert not isinstance(hypotheses, Exception)
    weights = reading.attention_weights if isinstance(reading, Regions) else ()
    return {
        "text": reading.text,
        "score": reading.score,
        "tokens": reading.tokens,
        "token_probabilities": rounded(reading.token_probabilities),
        "weights": [[rounded(row) for row in grid] for grid in weights],
        "hypotheses": found_hypotheses(hypotheses),
    }


async def follow(predictor: AsyncPredictor, body: dict[str, Any]) -> Answer:
    """Say how probable the outcome is after each event of a history.

    The body is `{"table": CSV with a row for each visit, "id": column, "time": column, "person":
    whose history, or "" for the first}`.
    """
    values = [body.get(key) for key in ("table", "id", "time", "person")]
    if not all(isinstance(value, str) for value in values):
        raise BadRequestError("expected table, id, time and person, all text")
    table, whose, when, person = map(str, values)
    try:
        people = parse_table(io.StringIO(table, newline=""), whose, when)
        person = person if person in people else next(iter(people))
        history = people[person]
        count = len(history[TIME])
        if count > MOST_EVENTS:
            raise ValueError(f"expected at most {MOST_EVENTS} visits of one id. Received: {count}")
        until = [{name: cells[: n + 1] for name, cells in history.items()} for n in range(count)]
        answers = await predictor.outcome(until, ignore=True)
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    return {
        "people": list(people),
        "person": person,
        "time": [float(time) for time in history[TIME]],
        "columns": {name: cells for name, cells in history.items() if name != TIME},
        "probabilities": rounded(answer.probability for answer in answers),
        "weights": [rounded(answer.attention_weights) for answer in answers],
    }
