"""The HTTP server under the REST interface: uvicorn, with a limit on the time of a head."""

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_SECONDS = 10  # from a connection, or the first byte of a further request, to its headers' end
_IDLE_SECONDS = 60
_MOST_CONNECTIONS = 1024
_MOST_HEAD_BYTES = 2**16


class _Protocol(H11Protocol):
    """Ends a connection whose request's head does not arrive in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        if self._late is None and self.conn.their_state is h11.IDLE:
            self._start()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._late = self.loop.call_later(_HEAD_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self._late:
            self._late.cancel()
            self._late = None


class RestServer:
    """`app` on a socket, in the running event loop.

    Args:
        app: an ASGI application.
        listening: a bound socket, which it closes.
        grace_seconds: for requests under way when it stops.
    """

    def __init__(self, app: Any, listening: socket.socket, grace_seconds: int):
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            log_level="critical",
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=grace_seconds,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        )
        self._server = uvicorn.Server(config)
        self._listening = listening
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take requests. Raises OSError where the port is taken."""
        self._server.config.load()
        self._server.lifespan = self._server.config.lifespan_class(self._server.config)
        await self._server.startup([self._listening])
        self._task = asyncio.create_task(self._server.main_loop())

    async def stop(self) -> None:
        """Take no new requests; return when those under way have ended, or after the grace."""
        self._server.should_exit = True
        if self._task:
            await self._task
            await self._server.shutdown([self._listening])
