"""The page's questions to a reader of images."""

from __future__ import annotations

from serving.client import AsyncReader, Regions
from serving.page.requests import Answer, if_served, rounded


async def read(reader: AsyncReader, image: bytes) -> Answer:
    """Say what stands in an image, and where the model looked for each token."""
    found = await if_served(reader.regions([image]))
    (one,) = found or await reader.read([image])
    assert not isinstance(one, Exception)  # it is raised unless errors are asked for
    tokens, weights = (one.tokens, one.attention_weights) if isinstance(one, Regions) else ((), ())
    return {
        "text": one.text,
        "score": one.score,
        "tokens": tokens,
        "weights": [[rounded(row) for row in grid] for grid in weights],
    }
