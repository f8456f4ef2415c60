"""Between a browser's requests and functions that answer them: bodies, errors, headers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.client import Hypothesis, InvalidRequestError, ServingError, SignatureNotFoundError

CLIENT_CLOSED = 499  # nobody reads it
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
T = TypeVar("T")
Read = Callable[[Request], Coroutine[Any, Any, T]]


class BadRequestError(Exception):
    """A request that the page does not make; its text says what was expected."""


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


def answering(
    function: Callable[[Request, T], Coroutine[Any, Any, Answer]], read: Read[T]
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Make an endpoint of a function: its result as JSON, its errors as one line.

    A browser that goes away, as one does that types on, cancels what it asked for, down to the
    call to the model server.
    """

    async def endpoint(request: Request) -> Response:
        try:
            body = await read(request)
            answer = await _unless_gone(request, function(request, body))
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

    return endpoint


async def nothing(request: Request) -> None:
    """Read no body."""


def json_object(most: int) -> Read[dict[str, Any]]:
    """Read a JSON object of at most so many bytes."""

    async def read(request: Request) -> dict[str, Any]:
        body = await _body(request, "application/json", most)
        try:
            value = json.loads(body)
            # A half of a surrogate pair, as typing can leave one, has no UTF-8: it becomes "?".
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        except (UnicodeDecodeError, ValueError, RecursionError):
            raise BadRequestError("expected JSON") from None
        if not isinstance(value, dict):
            raise BadRequestError("expected a JSON object")
        return value

    return read


def file(most: int) -> Read[bytes]:
    """Read a file of at most so many bytes."""

    async def read(request: Request) -> bytes:
        return await _body(request, "application/octet-stream", most)

    return read


async def if_served(answers: Coroutine[Any, Any, T]) -> T | None:
    """Return the answers, or None where the model has no such signature."""
    try:
        return await answers
    except SignatureNotFoundError:
        return None


def rounded(numbers: Iterable[float]) -> list[float]:
    """Return numbers as the page needs them."""
    return [round(number, 4) for number in numbers]


def found_hypotheses(hypotheses: Iterable[Hypothesis]) -> list[Answer]:
    """Return hypotheses; a search that found fewer fills up with -inf."""
    return [dataclasses.asdict(each) for each in hypotheses if each.score > -math.inf]


async def _body(request: Request, kind: str, most: int) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0] != kind:
        raise BadRequestError(f"expected the content type {kind}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise BadRequestError(f"expected at most {most:,} bytes")
    return body


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
