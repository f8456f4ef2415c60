"""A page on a port of its own, and a browser's view of it without a browser."""

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request

import uvicorn

from serving.page._app import HEADERS, build


class Page:
    """A running page: its address, and requests to it."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/"

    def ask(self, path, body=None, headers=None):
        """Return status, headers and body of an answer, JSON read."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if data is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.address + path, data, {**kind, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, found, text = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            status, found, text = error.code, error.headers, error.read()
        if found.get("content-type", "").startswith("application/json"):
            return status, found, json.loads(text)
        return status, found, text


@contextlib.contextmanager
def showing(settings):
    """Run the page with these settings."""
    options = {"headers": [*HEADERS.items()], "log_level": "error"}
    config = uvicorn.Config(build(settings), host="127.0.0.1", port=0, **options)
    server, listening = uvicorn.Server(config), config.bind_socket()
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Page(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(timeout=10)
