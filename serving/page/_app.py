"""The page's server: a Starlette application between a browser and a model server's gRPC port.

It stores no data: it sends what users type or drop to the model, and returns the answer.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from serving.api._histories import TIME, parse_table
from serving.api._http import LOCAL, Guard, unless_gone
from serving.api._results import split_sentences
from serving.client import (
    AsyncPredictor,
    AsyncReader,
    AsyncTranslator,
    Hypothesis,
    InvalidRequestError,
    Regions,
    ServingError,
    SignatureNotFoundError,
)
from serving.page._card import Card
from serving.portable.engine._scripts import rules
from training.data.rules import MOST_SENTENCES

CLIENT_CLOSED = 499  # the browser has gone and does not read it
HEADERS = {  # of every response
    # No content from other hosts, no inline scripts: text from a model cannot become code.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
Answer = dict[str, Any]
T = TypeVar("T")
Read = Callable[[Request], Coroutine[Any, Any, T]]
MOST_CHARACTERS = 5_000
MOST_EVENTS = 200  # of one history: each event is a request with all events before it
STATIC = Path(__file__).with_name("static")
MOST_TEXT = 4 * MOST_CHARACTERS + 4_096  # bytes of a request, as the two below
MOST_IMAGE = 8 << 20
MOST_TABLE = 1 << 20


class BadRequestError(Exception):
    """A request that the page never sends; the message says what was expected."""


def answering(
    path: str,
    function: Callable[[Any, Any], Coroutine[Any, Any, Answer]],
    kind: type = AsyncTranslator,
    read: Read[Any] | None = None,
) -> Route:
    """Return a route that answers requests with the JSON of `function`, or with a one-line error.

    A browser that disconnects, for instance because the user types on, cancels the work, including
    the call to the model server.

    Args:
        path: of the route.
        function: takes a client and the body; returns the answer.
        kind: the class of the client.
        read: reads the body of a POST request; without it, the route is a GET.
    """

    async def endpoint(request: Request) -> Response:
        try:
            body = await read(request) if read else None
            client = request.app.state.clients[kind]
            answer = await unless_gone(request, function(client, body))
            try:
                return JSONResponse(answer)
            except ValueError:
                error = "the model's answer has numbers that are not finite"
                return JSONResponse({"error": error}, 502)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED)
        except BadRequestError as error:
            return JSONResponse({"error": str(error)}, 400)
        except ServingError as error:
            status = 400 if isinstance(error, InvalidRequestError) else 502
            return JSONResponse({"error": str(error).splitlines()[0]}, status)

    return Route(path, endpoint, methods=["POST" if read else "GET"])


async def json_object(request: Request, most: int) -> dict[str, Any]:
    """Return the JSON object in a body of at most `most` bytes. Raises BadRequestError."""
    body = await bytes_of(request, most, "application/json")
    try:
        value = json.loads(body)
        # Typing can leave half a surrogate pair, which is not valid in UTF-8: it becomes "?".
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise BadRequestError("expected JSON") from None
    if not isinstance(value, dict):
        raise BadRequestError("expected a JSON object")
    return value


async def bytes_of(request: Request, most: int, kind: str = "application/octet-stream") -> bytes:
    """Return a body of content type `kind`, at most `most` bytes. Raises BadRequestError."""
    if request.headers.get("content-type", "").partition(";")[0] != kind:
        raise BadRequestError(f"expected the content type {kind}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise BadRequestError(f"expected at most {most:,} bytes")
    return body


async def if_served(answers: Coroutine[Any, Any, T]) -> T | None:
    """Return the answers, or None if the model lacks the signature."""
    try:
        return await answers
    except SignatureNotFoundError:
        return None


def rounded(numbers: Iterable[float]) -> list[float]:
    """Return numbers rounded to the four decimals that the page shows."""
    return [round(number, 4) for number in numbers]


def found_hypotheses(hypotheses: Iterable[Hypothesis]) -> list[Answer]:
    """Return the hypotheses without those of score -inf, which fill up the results of a search."""
    return [{"text": x.text, "score": x.score} for x in hypotheses if x.score > -math.inf]


async def translate(translator: AsyncTranslator, body: dict[str, Any]) -> Answer:
    """Return the translation of each sentence of a text. The body is `{"text": …}`."""
    text = body.get("text")
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise BadRequestError(f"expected a text of at most {MOST_CHARACTERS:,} characters")
    metadata = await translator.metadata()
    pieces = split_sentences(text, metadata.signatures)
    if len(pieces) > MOST_SENTENCES:
        raise BadRequestError(
            f"Give at most {MOST_SENTENCES} sentences at once. These are {len(pieces)}"
        )
    translations = await translator.translate([piece for piece, _ in pieces])
    return {
        "sentences": [
            {"source": source, "gap": gap, **asdict(translation)}
            for (source, gap), translation in zip(pieces, translations, strict=True)
        ]
    }


async def look(translator: AsyncTranslator, body: dict[str, Any]) -> Answer:
    """Return alignment and N best translations of each sentence of `{"texts": [sentence, …]}`."""
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
    sentences: list[Answer] = [{"alignment": None, "hypotheses": []} for _ in texts]
    for sentence, each in zip(sentences, alignments or (), strict=False):
        sentence["alignment"] = {
            "source": each.source_tokens,
            "target": each.target_tokens,
            "weights": [rounded(row) for row in each.attention_weights],
        }
    for sentence, several in zip(sentences, hypotheses or (), strict=False):
        sentence["hypotheses"] = found_hypotheses(several)
    return {"sentences": sentences}


async def read(reader: AsyncReader, contents: bytes) -> Answer:
    """Return an image's text, the probability and weights of each token, and the N best texts."""
    regions, others = await asyncio.gather(
        if_served(reader.regions([contents])), if_served(reader.nbest([contents]))
    )
    (reading,) = regions or await reader.read([contents])
    assert not isinstance(reading, Exception)  # errors are raised without `keep_errors`
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
    """Return the outcome's probability after each event of a history.

    The body is `{"table": CSV with a row for each visit, "id": column, "time": column, "person": id
    of the history, or "" for the first}`.
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
            raise ValueError(
                f"The page shows at most {MOST_EVENTS} visits of one id, and these are {count}"
            )
        until = [{name: cells[: n + 1] for name, cells in history.items()} for n in range(count)]
        answers = await predictor.outcome(until, ignore=True)
        inputs = (await predictor.metadata()).signatures["predict"]["inputs"]
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    return {
        "people": list(people),
        "person": person,
        "time": [float(time) for time in history[TIME]],
        "columns": {name: cells for name, cells in history.items() if name != TIME},
        "probabilities": rounded(answer.probability for answer in answers),
        "weights": [rounded(answer.attention_weights) for answer in answers],
        "truncated": answers[-1].truncated,
        "notes": list(people.notes(inputs)),
    }


@dataclass(frozen=True)
class PageSettings:
    """Settings of the page's server.

    Attributes:
        target: `host:port` of the model server.
        model: the model's name on the server.
        timeout: seconds for each request to the model server.
        card: the facts about the model that the page shows.
        example: the text that the page begins with.
        hosts: the host names that requests may have. Others are rejected, so that a foreign site
            whose name resolves to this machine gets nothing (DNS rebinding).
    """

    target: str
    model: str
    timeout: float = 10.0
    card: Card = field(default_factory=Card)
    example: str = ""
    hosts: tuple[str, ...] = LOCAL


def build(settings: PageSettings) -> Starlette:
    """Return the application; serve it with `HEADERS`."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.clients = {
                kind: await stack.enter_async_context(
                    kind(settings.target, settings.model, timeout=settings.timeout, retries=0)
                )
                for kind in (AsyncTranslator, AsyncReader, AsyncPredictor)
            }
            yield

    async def model(client: AsyncTranslator, _: None) -> Answer:
        metadata = await client.metadata()
        return {
            "model": metadata.model,
            "version": metadata.version,
            "target": settings.target,
            "signatures": metadata.signatures,
            "card": asdict(settings.card),
            "example": settings.example,
            "most_characters": MOST_CHARACTERS,
        }

    sentences = partial(json_object, most=MOST_TEXT)
    routes = [
        Route("/", lambda request: FileResponse(STATIC / "index.html")),
        Route("/healthz", lambda request: JSONResponse({"ok": True})),
        answering("/api/model", model),
        answering("/api/translate", translate, AsyncTranslator, sentences),
        answering("/api/look", look, AsyncTranslator, sentences),
        answering("/api/read", read, AsyncReader, partial(bytes_of, most=MOST_IMAGE)),
        answering("/api/follow", follow, AsyncPredictor, partial(json_object, most=MOST_TABLE)),
        Route("/static/rules.js", lambda request: Response(rules(), media_type="text/javascript")),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    guard = Middleware(Guard, hosts=settings.hosts)
    return Starlette(routes=routes, middleware=[guard], lifespan=lifespan)
