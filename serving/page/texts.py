"""The page's questions to a translator."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from serving.client import Alignment, AsyncTranslator
from serving.client.sentences import split_sentences
from serving.page import words
from serving.page.requests import Answer, BadRequestError, found_hypotheses, if_served, rounded

MOST_CHARACTERS = 5_000
MOST_SENTENCES = 64


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
