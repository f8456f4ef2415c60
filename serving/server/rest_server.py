"""The HTTP server under the REST interface: uvicorn, with limits on what a connection may cost."""

import asyncio
import re
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEAD_SECONDS = 10  # from a connection, or the first byte of a further request, to its headers' end
_IDLE_SECONDS = 60
_MOST_CONNECTIONS = 1024
_MOST_HEAD_BYTES = 2**14
# An event, such as a chunk of a body, takes about 35 microseconds however small it is.
_EVENTS_A_TURN = 32
_FREE_CHUNKS, _CHUNK_BYTES = 512, 64
_BARE_LF_OR_FOLD = re.compile(rb"(?<!\r)\n|\n[ \t]")


class _Connection(h11.Connection):
    """Parses a few events a turn. It refuses tiny chunks, and heads that parsers read differently.

    Attributes:
        left: events that this turn may still have. At 0 the parser asks for more data.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, _MOST_HEAD_BYTES)
        self.left = 0
        self._chunks = self._body_bytes = 0

    def next_event(self) -> Any:
        """See h11.Connection."""
        if not self.left:
            return h11.NEED_DATA
        self.left -= 1
        if self.their_state is h11.IDLE:
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if _BARE_LF_OR_FOLD.search(head):
                raise h11.RemoteProtocolError("a line of the head is folded, or ends without CR")
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._body_bytes += len(event.data)
            if self._chunks > _FREE_CHUNKS + self._body_bytes // _CHUNK_BYTES:
                raise h11.RemoteProtocolError("the body comes in too many small chunks")
        return event


class _Flow(FlowControl):
    """Reads nothing more while `held`."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class _Protocol(H11Protocol):
    """Ends a connection whose head arrives too late, and takes turns with others."""

    conn: _Connection
    flow: _Flow
    _late: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.conn = _Connection()

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        if self._late is None and self.conn.their_state is h11.IDLE:
            self._start()
        super().data_received(data)

    def handle_events(self) -> None:
        """Handle the events of a turn, then let other connections have theirs."""
        if self.flow.held:
            return
        self.conn.left = _EVENTS_A_TURN
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        if not self.conn.left and not self.transport.is_closing():
            self.flow.pause_reading()
            self.flow.held = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.transport.is_closing():
            return
        self.flow.held = False
        self.handle_events()
        if not self.flow.held and len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, unless an answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

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
    """`app` on a socket, in the running event loop."""

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
