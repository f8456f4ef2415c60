"""The page of somebody who comes for the first time: an example, the model in a line, a history."""

import base64

import numpy as np
import pytest
from playwright.sync_api import expect

from serving.page._app import PageSettings
from serving.page._card import Card
from tests.page.tabs import picture, tab_on
from tests.serving.page.models import VISITS

CARD = Card({"Data": "some"}, ("en", "fr"), "BLEU 41.2 on dev", ("good day", "one two. three"))


@pytest.fixture
def tab(browser, served):
    with tab_on(browser, PageSettings(served, "upper", card=CARD)) as tab:
        yield tab


def test_an_example_is_translated_and_others_are_a_click_away(tab):
    expect(tab.locator("#translation")).to_have_text("GOOD DAY")
    expect(tab.locator("#examples button")).to_have_text(["good day", "one two. three"])
    tab.locator("#examples button").nth(1).click()
    expect(tab.locator("#translation")).to_have_text("ONE TWO. THREE")


def test_the_model_is_one_line_and_the_rest_is_behind_it(tab):
    expect(tab.locator("#title")).to_have_text("upper")
    expect(tab.locator("#summary")).to_have_text("English to French · BLEU 41.2 on dev")
    assert tab.title() == "upper · English to French · where the model looks"
    labels = ["#text-label", "#translation-label"]
    assert [tab.locator(css).text_content() for css in labels] == ["English", "French"]
    expect(tab.locator("#card")).to_be_hidden()
    tab.get_by_text("About this model").click()
    expect(tab.locator("#card")).to_contain_text("Data")


def test_what_was_kept_is_listed_with_its_time_and_cleared_by_name(tab):
    expect(tab.locator("#translation")).to_have_text("GOOD DAY")
    clear = tab.get_by_role("button", name="Clear the history")
    expect(clear).to_be_hidden()
    tab.get_by_role("button", name="Keep in the history").click()
    expect(tab.locator("#history li")).to_have_count(1)
    expect(tab.locator("#history .said")).to_have_text("GOOD DAY")
    expect(tab.locator("#history time")).not_to_be_empty()
    clear.click()
    expect(tab.locator("#history li")).to_have_count(0)
    expect(tab.locator("#empty")).to_be_visible()


def test_an_image_of_the_examples_is_read(browser, kinds):
    images = np.zeros((2, 20, 30), "uint8")
    images[0, :10, :10] = images[1, :10, 20:] = 255
    card = Card(examples=tuple(base64.b64encode(picture(each)).decode() for each in images))
    with tab_on(browser, PageSettings(kinds, "bright", card=card)) as tab:
        tab.emulate_media(reduced_motion="reduce")
        for column in (0, 2):
            tab.locator("#examples button").nth(column // 2).click()
            expect(tab.locator("#said")).to_contain_text("abcde")
            tab.locator("#reading-text .word").first.hover()
            region = tab.locator("#regions")
            expect(region).to_have_attribute("data-region", f"0,{column}")


def test_a_table_of_the_examples_is_followed(browser, kinds):
    with tab_on(browser, PageSettings(kinds, "mean", card=Card(examples=(VISITS,)))) as tab:
        expect(tab.locator("svg .event")).to_have_count(3)
