"""The page of a reader of images, in a real browser."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from serving.client import Reader
from serving.page._app import PageSettings
from tests.page.tabs import picture, tab_on


@pytest.fixture
def tab(browser, kinds):
    with tab_on(browser, PageSettings(kinds, "bright")) as tab:
        expect(tab.locator("#pad")).to_be_visible()
        yield tab


def test_an_image_is_read_and_the_region_lights_up(tab, kinds, tmp_path, rng):
    path = tmp_path / "image.png"
    path.write_bytes(picture(rng.integers(0, 255, (20, 30))))
    with Reader(kinds, "bright") as reader:
        (expected,) = reader.regions([path])
    expect(tab.locator("#ask")).to_be_hidden()
    tab.locator("#file").set_input_files(path)
    expect(tab.locator("#said")).to_have_text("abcde (-1.00)")
    expect(tab.locator("#reading-text .unsaid")).to_have_count(0)
    places = []
    for position, weights in enumerate(expected.attention_weights):
        tab.locator("#reading-text .word").nth(position).hover()
        row, column = np.unravel_index(np.argmax(weights), np.shape(weights))
        places.append(f"{row},{column}")
        assert tab.locator("#regions").get_attribute("data-region") == places[-1]
    tab.locator("h1").hover()
    assert tab.locator("#regions").get_attribute("data-region") == places[1]  # the unsure one's


def test_unsure_characters_are_told_apart_and_other_readings_shown(tab, tmp_path):
    path = tmp_path / "image.png"
    path.write_bytes(picture(np.full((20, 30), 200)))
    tab.locator("#file").set_input_files(path)
    expect(tab.locator("#readings li")).to_have_text(["axcde (-1.50)", "nothing (-2.00)"])
    characters = tab.locator("#reading-text .word").all()
    names = [each.get_attribute("aria-label") for each in characters]
    assert names == ["a, 90 %", "b, unsure, 30 %", "c, 100 %", "d, 51 %", "e, 99 %"]
    lines = [each.evaluate("e => getComputedStyle(e).textDecorationLine") for each in characters]
    assert lines == ["none", "underline", "none", "none", "none"]


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_picture_is_pasted_and_dropped(tab, kind):
    tab.evaluate(
        """async kind => {
            const canvas = document.createElement("canvas");
            canvas.getContext("2d").fillRect(0, 0, 30, 20);
            canvas.getContext("2d").fillStyle = "#fff";
            canvas.getContext("2d").fillRect(9, 9, 200, 100);
            const blob = await new Promise(done => canvas.toBlob(done));
            const data = new DataTransfer();
            data.items.add(new File([blob], "image.png", {type: "image/png"}));
            const [make, field] = {
                paste: [ClipboardEvent, "clipboardData"], drop: [DragEvent, "dataTransfer"],
            }[kind];
            document.body.dispatchEvent(
                new make(kind, {[field]: data, bubbles: true, cancelable: true}));
        }""",
        kind,
    )
    expect(tab.locator("#said")).to_have_text(re.compile("abcde"))


def test_a_drawing_is_read(tab):
    box = tab.locator("#pad").bounding_box()
    tab.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.2 * box["height"])
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.3 * box["height"], steps=5)
    tab.mouse.up()
    expect(tab.locator("#said")).to_have_text("abcde (-1.00)")
    tab.locator("#reading-text .word").first.hover()
    assert tab.locator("#regions").get_attribute("data-region") == "0,0"  # where the pen was
    # Looking at a character ends their appearing one after the other.
    assert tab.locator("#reading-text .unsaid").count() == 0
    tab.wait_for_timeout(700)
    assert tab.locator("#regions").get_attribute("data-region") == "0,0"
