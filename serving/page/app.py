"""The page's server: Starlette between a browser and a model server's gRPC port.

It holds connections and no data: what is typed or dropped is asked of the model, answered and
forgotten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from serving.client import AsyncPredictor, AsyncReader, AsyncTranslator
from serving.page import questions
from serving.page.card import Card
from serving.page.requests import Answer, Headers, Read, answering, file, json_object, nothing

STATIC = Path(__file__).with_name("static")
LOCAL = ("localhost", "127.0.0.1", "[::1]")  # names of this machine
MOST_TEXT = 4 * questions.MOST_CHARACTERS + 4_096  # bytes of a request, as all below
MOST_IMAGE = 8 << 20
MOST_TABLE = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The model that the page asks, and the limits of asking.

    Attributes:
        target: the model server, `host:port`.
        model: the name it serves the model by.
        timeout: seconds for a request.
        card: what is known of the model.
        example: a text to begin with.
        options: further arguments of the clients, see `serving.client.transport.Endpoint`.
        hosts: names by which browsers may ask for the page; others are refused, so that a foreign
            page whose name leads here gets nothing.
    """

    target: str
    model: str
    timeout: float = 10.0
    card: Card = field(default_factory=Card)
    example: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    hosts: tuple[str, ...] = LOCAL


def build(settings: Settings) -> Starlette:
    """Build the application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        options = {"timeout": settings.timeout, "retries": 0, **settings.options}
        async with AsyncExitStack() as stack:
            app.state.clients = {
                kind: await stack.enter_async_context(
                    kind(settings.target, settings.model, **options)
                )
                for kind in (AsyncTranslator, AsyncReader, AsyncPredictor)
            }
            yield

    async def model(request: Request, _: None) -> Answer:
        metadata = await request.app.state.clients[AsyncTranslator].metadata()
        return {
            "model": metadata.model,
            "version": metadata.version,
            "target": settings.target,
            "signatures": metadata.signatures,
            "reads": questions.described(metadata.signatures.get("read", {}).get("inputs", ())),
            "card": asdict(settings.card),
            "example": settings.example,
            "most_characters": questions.MOST_CHARACTERS,
        }

    routes = [
        Route("/", lambda request: FileResponse(STATIC / "index.html")),
        Route("/healthz", lambda request: JSONResponse({"ok": True})),
        Route("/api/model", answering(model, nothing)),
        _question("/api/translate", questions.translate, AsyncTranslator, json_object(MOST_TEXT)),
        _question("/api/look", questions.look, AsyncTranslator, json_object(MOST_TEXT)),
        _question("/api/read", questions.read, AsyncReader, file(MOST_IMAGE)),
        _question("/api/follow", questions.follow, AsyncPredictor, json_object(MOST_TABLE)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=[*settings.hosts]),
        Middleware(Headers),
    ]
    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan)


def _question(
    path: str,
    function: Callable[[Any, Any], Coroutine[Any, Any, Answer]],
    kind: Any,
    read: Read[Any],
) -> Route:
    """Make a route of a question to a kind of model."""

    async def ask(request: Request, body: Any) -> Answer:
        return await function(request.app.state.clients[kind], body)

    endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = answering(ask, read)
    return Route(path, endpoint, methods=["POST"])
