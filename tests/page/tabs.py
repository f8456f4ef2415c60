"""Servers for the page, and tabs of a browser on it."""

import contextlib
import os
import shutil

from serving.server.model_server import ModelServer
from serving.server.settings import build_parser
from tests.serving.page.conftest import showing

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
# Headless Chromium, driven by playwright, in `make test-page`.
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
WIDTHS = {"narrow": 390, "middle": 820, "wide": 1280}


def start(base, port=0):
    words = [f"--port={port}", f"--model_name={base.name}", f"--model_base_path={base}"]
    server = ModelServer(build_parser().parse_args(words))
    server.start()
    return server


@contextlib.contextmanager
def tab_on(browser, settings):
    """A fresh browser tab on the page; nothing may come from another host, and no error."""
    with showing(settings) as page:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        outside, errors = [], []
        tab.on("request", lambda r: outside.append(r.url) if page.address not in r.url else None)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(page.address)
        yield tab
        context.close()
        assert [url for url in outside if not url.startswith(("data:", "blob:"))] == []
        assert errors == []
