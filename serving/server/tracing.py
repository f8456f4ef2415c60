"""The id of a request, from the headers of W3C trace context or `x-request-id`."""

import re
import secrets
from collections.abc import Mapping

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")
_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
_TRACESTATE = re.compile(r"[ -~]{1,512}")


def identify(headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The id of a request, and the headers that its answer carries.

    A valid `traceparent` gives the trace id (https://www.w3.org/TR/trace-context/). It comes back
    with a span of this server, and `tracestate` with it. Otherwise `x-request-id` is the id, or a
    random one is drawn.
    """
    if found := _TRACEPARENT.fullmatch(headers.get("traceparent", "")):
        trace_id, flags = found.groups()
        back = {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"}
        if _TRACESTATE.fullmatch(state := headers.get("tracestate", "")):
            back["tracestate"] = state
        return trace_id, back
    given = headers.get("x-request-id", "")
    request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
    return request_id, {"x-request-id": request_id}
