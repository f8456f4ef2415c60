"""A line in the log for each request."""

import json
import logging

from serving.server.call import Call

FORMATS = ("off", "text", "json")
_MOST_CHARACTERS = 128  # of a model's name, which the client chooses

log = logging.getLogger("serving.requests")


class RequestLog:
    """Writes requests to the logger `serving.requests`.

    Args:
        form: `off`, `text` (`id=… model=… …`) or `json` (one object a line).
    """

    def __init__(self, form: str = "off"):
        self._form = form

    def write(self, call: Call, method: str, model: str, status: str, seconds: float) -> None:
        """Write the line of a request that has been answered."""
        if self._form == "off":
            return
        fields = {
            "id": call.request_id,
            "entrypoint": call.entrypoint,
            "method": method,
            "model": model[:_MOST_CHARACTERS],
            "version": call.version,
            "status": status,
            "rows": call.rows,
            "milliseconds": round(seconds * 1000, 2),
        }
        if self._form == "json":
            log.info("%s", json.dumps(fields))
        else:
            log.info("%s", " ".join(f"{name}={json.dumps(v)}" for name, v in fields.items()))
