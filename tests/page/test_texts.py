"""The page of a translator, in a real browser."""

import pytest
from playwright.sync_api import expect

from serving.client import Translator
from serving.page._app import PageSettings
from tests.page.tabs import tab_on, weights_shown
from tests.serving.conftest import base, free_port, serving  # noqa: F401
from tests.serving.page.conftest import showing


def test_it_translates_as_one_types(view):
    expect(view.locator("#translation")).to_have_text("ONE TWO THREE")
    view.locator("#text").fill("")
    view.locator("#text").press_sequentially("she eats. apples", delay=5)
    expect(view.locator("#translation")).to_have_text("SHE EATS. APPLES")
    expect(view.locator(".sentence")).to_have_count(2)
    expect(view.locator("#status")).to_contain_text("upper, version 1")


def test_a_text_that_is_longer_than_the_model_reads_says_so(view):
    expect(view.locator("#note")).to_be_empty()
    view.locator("#text").fill("one. a b c d e f g h")
    expect(view.locator("#note")).to_have_text(
        "The text is longer than the model reads: its end is not translated."
    )
    view.locator("#text").fill("one. a b c")
    expect(view.locator("#note")).to_be_empty()


def test_a_word_lights_what_looks_at_it(view, served):
    text = "one two three four"
    view.locator("#text").fill(text)
    expect(view.locator("#translation")).to_have_text(text.upper())
    expect(view.locator(".words").nth(1)).to_have_text(text.upper())
    with Translator(served, "upper") as translator:
        (alignment,) = translator.align([text])
    for position in range(4):
        view.locator(".words").nth(0).locator(".word").nth(position).hover()
        column = [row[position] for row in alignment.attention_weights]
        assert weights_shown(view, 1) == pytest.approx(column, abs=1e-3)
        view.locator(".words").nth(1).locator(".word").nth(position).hover()
        row = list(alignment.attention_weights[position])
        assert weights_shown(view, 0) == pytest.approx(row, abs=1e-3)
    view.locator("h1").hover()
    assert sum(weights_shown(view, 0) + weights_shown(view, 1)) == 0


def test_the_keyboard_goes_from_word_to_word(view):
    expect(view.locator(".words").nth(0)).to_have_text("one two three")
    view.locator(".words").nth(0).locator(".word").nth(0).focus()
    view.keyboard.press("ArrowRight")
    assert view.evaluate("document.activeElement.textContent") == "two"
    assert weights_shown(view, 1) == [0, 1, 0]
    view.keyboard.press("End")
    assert weights_shown(view, 1) == [0, 0, 1]
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.textContent") == "ONE"
    assert "one 100 %" in view.evaluate("document.activeElement.getAttribute('aria-label')")


def test_the_matrix_and_the_best_translations(view):
    expect(view.locator("#hypotheses li")).to_have_count(3)
    assert view.locator("#shown").get_attribute("max") == "3"  # what the model gives
    expect(view.locator("output[for=shown]")).to_have_text("3 of 3")
    expect(view.locator("#beam")).to_contain_text("fixed in the export")
    view.locator("#shown").fill("2")
    expect(view.locator("#hypotheses li")).to_have_count(2)
    expect(view.locator("output[for=shown]")).to_have_text("2 of 3")
    view.get_by_role("button", name="Matrix").click()
    expect(view.locator("td[title]")).to_have_count(9)
    assert view.locator("td[title]").nth(4).get_attribute("title") == "TWO ← two: 100 %"


def test_what_a_text_holds_is_never_html(view):
    text = "<img src=x onerror=document.title=1> <b>bold</b>"
    view.locator("#text").fill(text)
    expect(view.locator("#translation")).to_have_text(text.upper())
    view.locator("#keep").click()
    expect(view.locator("#history li")).to_have_count(1)
    assert view.locator("main img, main b").count() == 0
    assert "looks" in view.title()


def test_the_history_is_shared_by_a_link(view):
    view.locator("#text").fill("first one")
    expect(view.locator("#translation")).to_have_text("FIRST ONE")
    view.locator("#keep").click()
    view.locator("#text").fill("second")
    expect(view.locator("#translation")).to_have_text("SECOND")
    view.locator("#share").click()
    expect(view.locator("#shared")).to_contain_text("link")
    link = view.evaluate("location.href")
    other = view.context.browser.new_context().new_page()
    other.goto(link)
    expect(other.locator("#translation")).to_have_text("SECOND")
    expect(other.locator("#history li")).to_have_count(2)
    other.locator("#history button").nth(1).click()
    expect(other.locator("#translation")).to_have_text("FIRST ONE")
    other.context.close()


def test_a_link_that_is_loaded_again_pushes_nothing_out_of_the_history(view):
    own = [{"text": f"own {n}", "translation": f"OWN {n}", "at": n + 1} for n in range(48)]
    keep = "pairs => localStorage.setItem('keras-attention-history', JSON.stringify(pairs))"
    view.evaluate(keep, own)
    link = view.evaluate(
        "location.href.split('#')[0] + '#' + "
        "encodeURIComponent(JSON.stringify(['own 7', 'of another']))"
    )
    for _ in range(3):
        view.goto("about:blank")
        view.goto(link)
        expect(view.locator("#text")).to_have_value("own 7")
        expect(view.locator("#history li")).to_have_count(49)
    kept = view.evaluate("JSON.parse(localStorage.getItem('keras-attention-history'))")
    others = [pair for pair in own if pair["text"] != "own 7"]
    assert kept == [own[7], {"text": "of another", "translation": ""}, *others]


def test_right_to_left_and_chinese(view):
    view.locator("#text").fill("שלום עולם")
    expect(view.locator(".words").nth(0).locator(".word")).to_have_count(2)
    words = view.locator(".words").nth(0)
    assert words.evaluate("e => getComputedStyle(e).direction") == "rtl"
    words.locator(".word").nth(0).focus()
    view.keyboard.press("ArrowLeft")
    assert view.evaluate("document.activeElement.textContent") == "עולם"
    view.locator("#text").fill("她 吃 苹果")
    expect(view.locator(".words").nth(0)).to_have_text("她 吃 苹果")


def test_it_recovers_when_the_server_comes_back(browser, base):  # noqa: F811
    port = free_port()
    flags = f"--port={port}", "--model_name=upper", f"--model_base_path={base}"
    with showing(PageSettings(f"127.0.0.1:{port}", "upper", example="one", timeout=2)) as page:
        tab = browser.new_page()
        with serving(*flags):
            tab.goto(page.address)
            expect(tab.locator("#translation")).to_have_text("ONE")
        tab.locator("#text").fill("two")
        expect(tab.locator("#status.error")).to_contain_text("no answer", timeout=15_000)
        assert "\n" not in tab.locator("#status").text_content()
        with serving(*flags):
            expect(tab.locator("#translation")).to_have_text("TWO", timeout=30_000)
            expect(tab.locator("#status.error")).to_have_count(0)
        tab.close()


def test_an_unsure_word_is_told_apart_by_more_than_colour(browser, kinds):
    with tab_on(browser, PageSettings(kinds, "unsure", example="one two three")) as tab:
        expect(tab.locator("#translation")).to_have_text("ONE TWO THREE")
        words = tab.locator("#translation span")
        names = [word.get_attribute("aria-label") for word in words.all()]
        assert names == ["ONE, 90 %", "TWO, unsure, 34 %", "THREE, 90 %"]
        line = "e => getComputedStyle(e).textDecorationLine"
        assert [word.evaluate(line) for word in words.all()] == ["none", "underline", "none"]


def test_models_of_letters_are_answered_whatever_is_typed(view, rng):
    def answers(route):
        sentences = []
        for text in route.request.post_data_json["texts"]:
            letters = [letter.strip() for letter in text]
            source = ["<unk>" if rng.random() < 0.2 else letter for letter in letters]
            weights = [[1 / len(source)] * len(source)]
            alignment = {"source": source, "target": ["A"], "weights": weights}
            sentences.append({"alignment": alignment, "hypotheses": []})
        route.fulfill(json={"sentences": sentences})

    view.route("**/api/look", answers)
    drawn = ["".join(rng.choice([*"aé3★給,'- "], rng.integers(1, 12))).strip() for _ in range(12)]
    for text in ["12 March 2024", *filter(None, drawn)]:
        view.locator("#text").fill(text)
        letters = [letter.strip() or "·" for letter in text]
        expect(view.locator(".words").first.locator(".word")).to_have_text(letters)
