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
def tab_at(browser, address):
    """A fresh browser tab, and the addresses that it asked for; there may be no error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab, asked, errors = context.new_page(), [], []
    context.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    tab.goto(address)
    yield tab, asked
    context.close()
    # Chromium names each answer of an error, too.
    assert [text for text in errors if not text.startswith("Failed to load resource")] == []


@contextlib.contextmanager
def tab_on(browser, settings):
    """A tab on the page; nothing may come from another host."""
    with showing(settings) as page, tab_at(browser, page.address) as (tab, asked):
        yield tab
    assert [url for url in asked if not url.startswith((page.address, "data:", "blob:"))] == []
