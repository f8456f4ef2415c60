"""Tabs of a browser on the page."""

import contextlib
import io
import os
import shutil

from PIL import Image

from tests.serving.page.conftest import showing

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
# Headless Chromium, driven by playwright, in `make test-page`.
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
WIDTHS = 390, 820, 1280


def weights_shown(tab, line):
    words = tab.locator(".words").nth(line).locator(".word")
    return [float(word.get_attribute("data-weight") or 0) for word in words.all()]


def picture(pixels):
    """The bytes of a PNG of shades of gray."""
    file = io.BytesIO()
    Image.fromarray(pixels.astype("uint8")).save(file, "png")
    return file.getvalue()


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
