"""What the server and the page have in common over HTTP: who may send, and who has gone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Collection, Sequence
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_T = TypeVar("_T")
LOCAL = ("localhost", "127.0.0.1", "[::1]")  # names of this machine


def host_names(address: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the host names that requests may have for a server that listens on an address.

    0.0.0.0 and :: are not among them, since pages of other sites can reach this machine by them.
    """
    name = f"[{address}]" if ":" in address else address
    return (*LOCAL, *names, *({name} - {"0.0.0.0", "[::]"}))


class Guard:
    """Rejects requests that a page of another site makes a browser send.

    Args:
        app: the application.
        hosts: the names that the header Host may have, so that a foreign name that resolves to this
            machine gets nothing (DNS rebinding); None means any.
        origins: the origins whose pages may POST, "*" for any; None means no check.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str] | None = None,
        origins: Collection[str] | None = None,
    ):
        self._app, self._origins = app, origins
        self._hosts = None if hosts is None else {name.lower() for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a rejected request; pass others on."""
        if scope["type"] == "http" and (problem := self._problem(scope)):
            # What is left of an unread body must not be parsed as a request.
            closing = JSONResponse({"error": problem[1]}, problem[0], {"connection": "close"})
            return await closing(scope, receive, send)
        await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the error of a request that is rejected."""
        headers = Headers(scope=scope)
        if {"content-length", "transfer-encoding"} <= {*headers.keys()}:
            return 400, "expected Content-Length or Transfer-Encoding. Received: both"
        host = headers.get("host", "").lower()
        name = re.sub(r":\d*$", "", host)
        # Browsers send a Host; probes over HTTP/1.0 may not.
        if host and self._hosts is not None and name not in self._hosts:
            return 400, f"Host expected one of {sorted(self._hosts)}. Received: {name[:100]!r}"
        origin = headers.get("origin")
        if origin is None or self._origins is None or scope["method"] != "POST":
            return None
        own = {f"{scheme}://{host}" for scheme in ("http", "https")}
        if "*" in self._origins or origin in {*self._origins, *own}:
            return None
        return 403, f"the page of {origin[:100]} may not POST: see --rest_api_cors_origins"


async def unless_gone(request: Request, work: Awaitable[_T]) -> _T:
    """Return the result of `work` for a request whose body has been read.

    If the client disconnects first, cancels the work, waits for its end and raises
    ClientDisconnect.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = working, _ = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in tasks:
            task.cancel()
        # Otherwise asyncio would log an error that comes now.
        await asyncio.gather(*tasks, return_exceptions=True)
