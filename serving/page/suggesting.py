"""The page's questions about what was begun: other words, and how a translation goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

from serving.client import AsyncTranslator
from serving.page.requests import Answer, BadRequestError
from serving.page.texts import MOST_CHARACTERS


async def alternatives(translator: AsyncTranslator, body: dict[str, Any]) -> Answer:
    """Say which words may follow the beginning of a translation: `{"text": …, "prefix": …}`."""
    text, prefix = _begun(body)
    (found,) = await translator.alternatives([text], [prefix])
    return {"alternatives": [dataclasses.asdict(one) for one in found]}


async def complete(translator: AsyncTranslator, body: dict[str, Any]) -> Answer:
    """Go on with the beginning of a sentence's translation: `{"text": …, "prefix": …}`."""
    text, prefix = _begun(body)
    (found,) = await translator.complete([text], [prefix])
    return dataclasses.asdict(found)


def _begun(body: dict[str, Any]) -> tuple[str, str]:
    text, prefix = body.get("text"), body.get("prefix")
    if (
        not isinstance(text, str)
        or not isinstance(prefix, str)
        or len(text) + len(prefix) > MOST_CHARACTERS
    ):
        raise BadRequestError(
            f"expected a text and a prefix of at most {MOST_CHARACTERS:,} characters"
        )
    return text, prefix
