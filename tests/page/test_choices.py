"""Words of a translation that people change, in a real browser."""

import pytest
from playwright.sync_api import expect

from serving.page.app import Settings
from tests.page.tabs import tab_on


@pytest.fixture
def tab(browser, begun):
    with tab_on(browser, Settings(begun, "begun", example="one two three")) as tab:
        expect(tab.locator("#translation")).to_have_text("ONE TWO THREE")
        yield tab


def choice(tab, position):
    return tab.locator("#translation .choice").nth(position)


def open_choice(tab, position):
    choice(tab, position).click()
    expect(tab.locator(".choices-panel li")).to_have_count(2)


def type_word(tab, word):
    tab.get_by_label("Another word").fill(word)
    tab.keyboard.press("Enter")


def test_a_word_is_changed_by_mouse_and_the_rest_follows(tab):
    choice(tab, 1).click()
    others = tab.locator(".choices-panel li")
    expect(others).to_have_text(["RED 61 %", "BLUE 25 %"])
    others.nth(1).locator("button").click()
    expect(tab.locator("#translation")).to_have_text("ONE BLUE THREETHREE")
    expect(tab.locator(".choices-panel")).to_have_count(0)
    assert [{*choice(tab, n).get_attribute("class").split()} for n in range(3)] == [
        {"choice"},
        {"choice", "unsure", "changed"},
        {"choice", "changed"},
    ]


def test_a_word_is_typed_and_the_change_undone_by_keyboard_alone(tab):
    choice(tab, 0).focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    expect(tab.locator(".choices-panel li")).to_have_count(2)
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    tab.keyboard.type("GREEN")
    tab.keyboard.press("Enter")
    expect(tab.locator("#translation")).to_have_text("ONE GREEN THREETHREE")
    assert tab.evaluate("document.activeElement.textContent") == "GREEN"
    tab.keyboard.press("Enter")
    undo = tab.get_by_role("button", name="Undo")
    expect(undo).to_be_enabled()
    expect(tab.locator(".choices-panel li")).to_have_count(2)
    undo.focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("#translation")).to_have_text("ONE TWO THREE")
    expect(tab.locator(".choice.changed")).to_have_count(0)


def test_a_word_stays_as_it_was_typed(tab):
    open_choice(tab, 1)
    type_word(tab, "BL")
    expect(tab.locator("#translation")).to_have_text("ONE BL THREETHREE")


def test_a_word_that_cannot_be_said_changes_nothing(tab):
    open_choice(tab, 1)
    type_word(tab, "☃")
    expect(tab.locator("#status.error")).to_contain_text("no tokens")
    expect(tab.locator("#translation")).to_have_text("ONE TWO THREE")
    type_word(tab, "BLUE")
    expect(tab.locator("#translation")).to_have_text("ONE BLUE THREETHREE")


def test_escape_leaves_all_as_it_was(tab):
    open_choice(tab, 2)
    tab.keyboard.press("Escape")
    expect(tab.locator(".choices-panel")).to_have_count(0)
    assert tab.evaluate("document.activeElement.textContent") == "THREE"
    expect(tab.locator("#translation")).to_have_text("ONE TWO THREE")


def test_an_unsure_word_is_told_apart_by_more_than_colour(tab):
    assert choice(tab, 1).get_attribute("aria-label") == "TWO, unsure, 34 %"
    assert choice(tab, 0).get_attribute("aria-label") == "ONE, 90 %"
    line = "getComputedStyle(document.querySelectorAll('.choice')[{}]).textDecorationLine"
    assert tab.evaluate(line.format(1)) == "underline"
    assert tab.evaluate(line.format(0)) == "none"


def test_a_question_without_a_prefix_is_refused(tab):
    answer = tab.request.post(f"{tab.url}api/complete", data={"text": "one"})
    assert answer.status == 400
    assert "prefix" in answer.json()["error"]


def test_words_of_one_sentence_do_not_touch_those_of_the_next(tab):
    sentences = [
        {"source": source, "gap": "", "text": "".join(words), "score": -1.0, "truncated": False}
        | {"words": words, "word_probabilities": [0.9] * len(words)}
        for source, words in (
            ("他睡觉。", ["He", " sleeps", "."]),
            ("她吃。", ["She", " eats", "."]),
        )
    ]
    tab.route("**/api/translate", lambda route: route.fulfill(json={"sentences": sentences}))
    tab.locator("#text").fill("他睡觉。她吃。")
    expect(tab.locator("#translation")).to_have_text("He sleeps. She eats.")
