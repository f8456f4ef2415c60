"""Whoever looks, on whatever screen: widths, and the findings of axe, in a real browser.

With `PAGE_SCREENSHOTS=DIR` the pictures of three widths are written there.
"""

import base64
import io
import os
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect

from serving.page.app import PageSettings
from serving.page.card import Card
from tests.page.tabs import WIDTHS, tab_on
from tests.serving.page.models import VISITS


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["bright", "mean"])
def test_the_other_kinds_fit_the_screen(browser, kind, width, request, tmp_path):
    path = tmp_path / "image.png"
    path.write_bytes(picture())
    settings = PageSettings(request.getfixturevalue(kind), kind, example=VISITS)
    with tab_on(browser, settings) as tab:
        tab.set_viewport_size({"width": WIDTHS[width], "height": 900})
        if kind == "bright":
            expect(tab.locator("#pad")).to_be_visible()
            tab.locator("#file").set_input_files(path)
        expect(tab.locator("#said" if kind == "bright" else "#event")).not_to_be_empty()
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]


RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_page_of_texts(view, scheme):
    view.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    expect(view.locator(".words").nth(1)).to_have_text("ONE TWO THREE")
    view.locator("#keep").click()
    view.get_by_text("About this model").click()
    view.locator(".words").nth(0).locator(".word").nth(0).hover()
    assert violations(view) == []
    view.get_by_role("button", name="Matrix").click()
    assert violations(view) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["bright", "mean", "unsure"])
def test_axe_finds_nothing_on_other_pages(browser, kind, scheme, request):
    image = base64.b64encode(picture()).decode()
    example = {"bright": "", "mean": VISITS, "unsure": "one two three"}[kind]
    card = Card({"Data": "some"}, examples=(image,) if kind == "bright" else ())
    settings = PageSettings(request.getfixturevalue(kind), kind, card=card, example=example)
    with tab_on(browser, settings) as tab:
        tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        shown = {"bright": "#said", "mean": "#event", "unsure": "#translation"}[kind]
        expect(tab.locator(shown)).not_to_be_empty()
        assert violations(tab) == []


def violations(tab):
    """Return the findings of axe, wrong or undecided; the ground of a chart's text it never can."""
    answer = Axe().run(tab, options=RULES).response
    rules = answer["violations"] + answer["incomplete"]
    found = [(rule["id"], node["html"]) for rule in rules for node in rule["nodes"]]
    return [(rule, html) for rule, html in found if not html.startswith("<text ")]


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_the_screen(view, width):
    view.set_viewport_size({"width": WIDTHS[width], "height": 900})
    expect(view.locator(".words").nth(1)).to_have_text("ONE TWO THREE")
    assert view.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    if folder := os.environ.get("PAGE_SCREENSHOTS"):
        view.screenshot(path=Path(folder) / f"page-{width}.png")


def picture():
    file = io.BytesIO()
    Image.fromarray(np.full((20, 30), 200, "uint8")).save(file, "png")
    return file.getvalue()
