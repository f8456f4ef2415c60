"""PredictionService and ModelService over gRPC.

The event loop receives messages and sends answers as bytes. Threads do the rest. Calls are declared
as streams of one message, which look the same to a client: so a message is read only after its call
has been accepted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message

from serving.client import protobuf
from serving.client.printing import printable
from serving.savedmodel.status import Code, StatusError, invalid, shortened
from serving.server.api import INFERENCE, Api
from serving.server.call import Call
from serving.server.tracing import identify
from serving.server.workers import Pools

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_FOREVER_SECONDS = 2**31 / 1000
_ARRIVAL_SECONDS = 30
_MOST_ARRIVING = 4096
_MOST_SMALL_BYTES = 2**16  # of a request that the event loop answers by itself
_ReloadConfigRequest = protobuf.message("ReloadConfigRequest")
_ReloadConfigResponse = protobuf.message("ReloadConfigResponse")

log = logging.getLogger(__name__)
Context: TypeAlias = grpc.aio.ServicerContext
Answer = Callable[[bytes, Call, Context], Awaitable[bytes]]
Handler = Callable[[object, Context], Awaitable[bytes | None]]


class Services:
    """The methods of both services."""

    def __init__(self, api: Api, pools: Pools, may_reload: bool = True):
        self._api = api
        self._pools = pools
        self._may_reload = may_reload
        self._arriving = 0

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """For `grpc.aio.Server.add_generic_rpc_handlers`."""
        metadata = (protobuf.GetModelMetadataRequest, self._api.get_model_metadata)
        status = (protobuf.GetModelStatusRequest, self._api.get_model_status)
        prediction: dict[str, Answer] = {name: partial(self._infer, name) for name in INFERENCE}
        prediction["GetModelMetadata"] = partial(self._tell, *metadata)
        model: dict[str, Answer] = {
            "GetModelStatus": partial(self._tell, *status),
            "HandleReloadConfigRequest": self._reload,
        }
        return [
            grpc.method_handlers_generic_handler(
                f"tensorflow.serving.{service}",
                {
                    name: grpc.stream_unary_rpc_method_handler(self._guarded(answer))
                    for name, answer in methods.items()
                },
            )
            for service, methods in (("PredictionService", prediction), ("ModelService", model))
        ]

    def _guarded(self, answer: Answer) -> Handler:
        async def handle(_: object, context: Context) -> bytes | None:
            headers = {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
            request_id, back = identify(headers)
            call = Call(_seconds(context), "GRPC", request_id)
            try:
                data = await self._receive(context)
                if "traceparent" in headers or "x-request-id" in headers:
                    # Headers sent before the answer cost a turn of the event loop.
                    await context.send_initial_metadata(tuple(back.items()))
                return await answer(data, call, context)
            except DecodeError:
                await context.abort(grpc.StatusCode.INTERNAL, "Exception deserializing request!")
            except Exception as error:
                status = self._api.status_of(error, call)
                await context.abort(_CODES[status.code], shortened(status.message))
            return None  # an abort raises

        return handle

    async def _receive(self, context: Context) -> bytes:
        if self._arriving >= _MOST_ARRIVING:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"The server is overloaded: {self._arriving} requests are arriving",
            )
        self._arriving += 1
        try:
            async with asyncio.timeout(_ARRIVAL_SECONDS):
                data = await context.read()
        except TimeoutError:
            raise StatusError(
                Code.DEADLINE_EXCEEDED,
                f"The request did not arrive within {_ARRIVAL_SECONDS} seconds",
            ) from None
        finally:
            self._arriving -= 1
        if not isinstance(data, bytes):
            raise StatusError(Code.INTERNAL, "The call ended without a request")
        return data

    async def _infer(self, method: str, data: bytes, call: Call, context: Context) -> bytes:
        kind, _ = INFERENCE[method]

        def work() -> bytes:
            call.check()
            return self._api.infer(method, kind.FromString(data), call).SerializeToString()

        return await self._pools.run(len(data), work, call)

    async def _tell(
        self,
        kind: type[Message],
        answer: Callable[[Message], Message],
        data: bytes,
        call: Call,
        context: Context,
    ) -> bytes:
        """Answer in the event loop: it needs no model, so it does not wait for predictions."""
        if len(data) > _MOST_SMALL_BYTES:
            raise invalid(f"A request of more than {_MOST_SMALL_BYTES} bytes")
        return answer(kind.FromString(data)).SerializeToString()

    async def _reload(self, data: bytes, call: Call, context: Context) -> bytes:
        def work() -> bytes:
            request = _ReloadConfigRequest.FromString(data)
            names = ", ".join(model.name for model in request.config.model_config_list.config)
            log.info("ReloadConfig from %s: models %s", context.peer(), printable(names[:1000]))
            self._api.reload_config(request)
            response = _ReloadConfigResponse()
            response.status.error_code = Code.OK
            return response.SerializeToString()

        if not self._may_reload:
            log.warning("ReloadConfig from %s refused", context.peer())
            raise StatusError(
                Code.PERMISSION_DENIED, "HandleReloadConfigRequest is disabled on this server"
            )
        return await self._pools.reload.run(work, call)


def _seconds(context: Context) -> float | None:
    """Seconds left for the request; None without a deadline."""
    remaining = context.time_remaining()
    return None if remaining is None or remaining >= _FOREVER_SECONDS else remaining
