"""The page's questions to a reader of images or other files."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from serving.client import AsyncReader, Regions
from serving.client.file_kinds import kind_of_inputs
from serving.page.requests import (
    Answer,
    BadRequestError,
    found_hypotheses,
    if_served,
    rounded,
)


def described(inputs: Collection[str]) -> dict[str, Any]:
    """Return what the page says of the files that the signature `read` with these inputs takes."""
    kind = kind_of_inputs(inputs)
    return {"name": kind.name, "endings": kind.endings}


async def read(reader: AsyncReader, contents: bytes) -> Answer:
    """Say what a file reads, how sure each token is and where it was seen, and other texts."""
    try:
        found, others = await asyncio.gather(
            if_served(reader.regions([contents])), if_served(reader.nbest([contents]))
        )
        (one,) = found or await reader.read([contents])
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    assert not isinstance(one, Exception)  # it is raised unless errors are asked for
    (hypotheses,) = others or [[]]
    assert not isinstance(hypotheses, Exception)
    weights = one.attention_weights if isinstance(one, Regions) else ()
    return {
        "text": one.text,
        "score": one.score,
        "tokens": one.tokens,
        "token_probabilities": rounded(one.token_probabilities),
        "weights": [[rounded(row) for row in grid] for grid in weights],
        "hypotheses": found_hypotheses(hypotheses),
    }
