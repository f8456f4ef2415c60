"""Whoever looks, on whatever screen: widths, and the findings of axe, in a real browser."""

import base64

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from serving.page._app import PageSettings
from serving.page._card import Card
from tests.page.tabs import WIDTHS, picture, tab_on
from tests.serving.page.models import VISITS

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
KINDS = {"bright": "#said", "mean": "#event", "unsure": "#translation"}  # where an answer stands


@pytest.fixture(params=KINDS)
def other(request, browser, kinds):
    """A tab of another kind with an answer of its example."""
    image, kind = base64.b64encode(picture(np.full((20, 30), 200))).decode(), request.param
    example = {"bright": "", "mean": VISITS, "unsure": "one two three"}[kind]
    card = Card({"Data": "some"}, examples=(image,) if kind == "bright" else ())
    settings = PageSettings(kinds, kind, card=card, example=example)
    with tab_on(browser, settings) as tab:
        expect(tab.locator(KINDS[kind])).not_to_be_empty()
        yield tab


def test_other_kinds_fit_the_screen_and_axe_finds_nothing(other):
    assert_fits(other)
    for scheme in ("light", "dark"):
        other.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(other) == []


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


def assert_fits(tab):
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def violations(tab):
    """Return the findings of axe, wrong or undecided; the ground of a chart's text it never can."""
    answer = Axe().run(tab, options=RULES).response
    rules = answer["violations"] + answer["incomplete"]
    found = [(rule["id"], node["html"]) for rule in rules for node in rule["nodes"]]
    return [(rule, html) for rule, html in found if not html.startswith("<text ")]


def test_it_fits_the_screen(view):
    expect(view.locator(".words").nth(1)).to_have_text("ONE TWO THREE")
    assert_fits(view)
