"""The server's log: one line a record, whatever a client sends, and a limit of each kind."""

import logging
import threading
import time
from typing import TextIO

from serving.client.printing import printable

_MOST = 10  # records of a kind
_SECONDS = 60


class _Line(logging.Formatter):
    """Escapes line ends and control characters, in tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if text.isprintable() else printable(text)


class _Limit(logging.Filter):
    """Passes ten warnings or errors a minute from each place in the code."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        with self._lock:
            since, count = self._seen.get(place, (now, 0))
            if now - since > _SECONDS:
                if count > _MOST:
                    record.msg = f"{record.getMessage()} ({count - _MOST} like it were left out)"
                    record.args = None
                since, count = now, 0
            self._seen[place] = since, count + 1
        return count < _MOST


def log_to(stream: TextIO) -> None:
    """Write all logs of the process to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Line("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_Limit())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
