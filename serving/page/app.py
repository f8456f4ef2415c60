"""The page's server: Starlette between a browser and a model server's gRPC port.

It holds one connection and no text: what is typed is asked of the model, answered and forgotten.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.client import Alignment, AsyncTranslator, ServingError
from serving.errors import SignatureNotFoundError
from serving.page import words
from serving.translation import split_sentences

STATIC = Path(__file__).with_name("static")
MOST_CHARACTERS = 5_000
MOST_SENTENCES = 64
LOCAL = ("localhost", "127.0.0.1", "[::1]")  # names of this machine
CLIENT_CLOSED = 499  # nobody reads it
MOST_BYTES = 4 * MOST_CHARACTERS + 4_096  # of a request's body
HEADERS = {
    # Nothing from another host, nothing inline: text from a model can not become code.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
Answer = dict[str, Any]
Body = dict[str, Any]
T = TypeVar("T")


class BadRequestError(Exception):
    """A request that the page does not make; its text says what was expected."""


@dataclass(frozen=True)
class Settings:
    """What the page asks, and what it says of it.

    Attributes:
        target: the model server, `host:port`.
        model: the name it serves the model by.
        timeout: seconds for a request.
        card: lines that say what is known of the model: see `serving.page.card`.
        example: a text to begin with.
        options: further arguments of `serving.client.AsyncTranslator`.
        hosts: names by which browsers may ask for the page; others are refused, so that a foreign
            page whose name leads here gets nothing.
    """

    target: str
    model: str
    timeout: float = 10.0
    card: dict[str, str] = field(default_factory=dict)
    example: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    hosts: tuple[str, ...] = LOCAL


def build(settings: Settings) -> Starlette:
    """Build the application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        options = {"timeout": settings.timeout, "retries": 0, **settings.options}
        async with AsyncTranslator(settings.target, settings.model, **options) as translator:
            app.state.translator = translator
            yield

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def model(request: Request, _: Body) -> Answer:
        found = await request.app.state.translator.metadata()
        return {
            "model": found.model,
            "version": found.version,
            "target": settings.target,
            "signatures": found.signatures,
            "card": settings.card,
            "example": settings.example,
            "most_characters": MOST_CHARACTERS,
        }

    async def translate(request: Request, body: Body) -> Answer:
        """Translate a text, sentence by sentence: `{"text": …}`."""
        text = body.get("text")
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            raise BadRequestError(f"expected a text of at most {MOST_CHARACTERS:,} characters")
        pieces = split_sentences(text)
        if len(pieces) > MOST_SENTENCES:
            raise BadRequestError(
                f"expected at most {MOST_SENTENCES} sentences; received {len(pieces)}"
            )
        found = await request.app.state.translator.translate([piece for piece, _ in pieces])
        return {
            "sentences": [
                {"source": source, "gap": gap, **dataclasses.asdict(one)}
                for (source, gap), one in zip(pieces, found, strict=True)
            ]
        }

    async def look(request: Request, body: Body) -> Answer:
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
        translator = request.app.state.translator
        alignments, hypotheses = await asyncio.gather(
            _if_served(translator.align(texts)), _if_served(translator.nbest(texts))
        )
        return {
            "sentences": [
                {
                    "alignment": _words(alignments[number]) if alignments else None,
                    "hypotheses": [
                        dataclasses.asdict(one) for one in (hypotheses or [[]] * len(texts))[number]
                    ],
                }
                for number in range(len(texts))
            ]
        }

    routes = [
        Route("/", page),
        Route("/healthz", lambda request: JSONResponse({"ok": True})),
        Route("/api/model", _answer(model)),
        Route("/api/translate", _answer(translate), methods=["POST"]),
        Route("/api/look", _answer(look), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=[*settings.hosts]),
        Middleware(Headers),
    ]
    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan)


class Headers:
    """Adds `HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        await self._app(scope, receive, with_headers)


def _answer(
    function: Callable[[Request, Body], Coroutine[Any, Any, Answer]],
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Make an endpoint of a function: its result as JSON, its errors as one line.

    A browser that goes away, as one does that types on, cancels what it asked for, down to the
    call to the model server.
    """

    async def endpoint(request: Request) -> Response:
        try:
            body = await _body(request) if request.method == "POST" else {}
            return JSONResponse(await _unless_gone(request, function(request, body)))
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED)
        except BadRequestError as error:
            return JSONResponse({"error": str(error)}, 400)
        except ServingError as error:
            return JSONResponse({"error": str(error).splitlines()[0]}, 502)

    return endpoint


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a request that has been read; stop it when the browser goes away.

    Raises:
        ClientDisconnect: if it has gone.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    if not working.done():
        working.cancel()
        raise ClientDisconnect
    return working.result()


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
    rounded = [[round(weight, 4) for weight in row] for row in weights]
    return {"source": source, "target": target, "weights": rounded}


async def _body(request: Request) -> dict[str, Any]:
    """Read a JSON object of at most `MOST_BYTES`."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise BadRequestError("expected the content type application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise BadRequestError(f"expected at most {MOST_BYTES:,} bytes")
    try:
        found = json.loads(body)
        # A half of a surrogate pair, as typing can leave one, has no UTF-8: it becomes "?".
        found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise BadRequestError("expected JSON") from None
    if not isinstance(found, dict):
        raise BadRequestError("expected a JSON object")
    return found
