"""The page in a real browser: headless Chromium, driven by playwright. Run by `make test-page`.

With `PAGE_SCREENSHOTS=DIR` the pictures of three widths are written there.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from serving.client import Reader, Translator
from serving.model_server.flags import build_parser
from serving.model_server.model_server import ModelServer
from serving.page.app import Settings
from tests.serving.conftest import add_version, save_upper
from tests.serving.page.conftest import showing
from tests.serving.page.models import VISITS, save_predictor, save_reader

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
WIDTHS = {"narrow": 390, "middle": 820, "wide": 1280}


def start(base, port=0):
    words = [f"--port={port}", f"--model_name={base.name}", f"--model_base_path={base}"]
    server = ModelServer(build_parser().parse_args(words))
    server.start()
    return server


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("browser")
    add_version(save_upper(root / "saved"), root / "upper", 1)
    return root / "upper"


@pytest.fixture(scope="module")
def served(base):
    server = start(base)
    yield f"127.0.0.1:{server.port}"
    server.close()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=FLAGS.split()
        )
        yield opened
        opened.close()


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


@pytest.fixture
def view(browser, served):
    with tab_on(browser, Settings(served, "upper", example="one two three")) as tab:
        yield tab


@pytest.fixture(scope="module")
def bright(tmp_path_factory):
    root = tmp_path_factory.mktemp("bright")
    add_version(save_reader(root / "saved"), root / "bright", 1)
    server = start(root / "bright")
    yield f"127.0.0.1:{server.port}"
    server.close()


@pytest.fixture(scope="module")
def mean(tmp_path_factory):
    root = tmp_path_factory.mktemp("mean")
    add_version(save_predictor(root / "saved"), root / "mean", 1)
    server = start(root / "mean")
    yield f"127.0.0.1:{server.port}"
    server.close()


def weights_shown(tab, line):
    words = tab.locator(".words").nth(line).locator(".word")
    return [float(word.get_attribute("data-weight") or 0) for word in words.all()]


def test_it_translates_as_one_types(view):
    expect(view.locator("#translation")).to_have_text("ONE TWO THREE")
    view.locator("#text").fill("")
    view.locator("#text").press_sequentially("she eats. apples", delay=5)
    expect(view.locator("#translation")).to_have_text("SHE EATS. APPLES")
    expect(view.locator(".sentence")).to_have_count(2)
    expect(view.locator("#status")).to_contain_text("upper, version 1")


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
    view.locator(".sentence summary").click()
    expect(view.locator("td[title]")).to_have_count(9)
    assert view.locator("td[title]").nth(4).get_attribute("title") == "TWO ← two: 100 %"


def test_the_slider_is_not_there_for_one_translation_and_comes_back(view):
    def answers(route):
        texts = route.request.post_data_json["texts"]
        found = [{"text": str(n), "score": -1.0 - n} for n in range(5 if "five" in texts else 1)]
        sentences = [{"alignment": None, "hypotheses": found} for _ in texts]
        route.fulfill(json={"sentences": sentences})

    expect(view.locator("#hypotheses li")).to_have_count(3)
    view.route("**/api/look", answers)
    view.locator("#text").fill("single")
    expect(view.locator("#others")).to_be_hidden()
    view.locator("#text").fill("five")
    expect(view.locator("output[for=shown]")).to_have_text("3 of 5")
    assert view.locator("#shown").get_attribute("max") == "5"
    expect(view.locator("#hypotheses li")).to_have_count(3)


def test_what_a_text_holds_is_never_html(view):
    text = "<img src=x onerror=document.title=1> <b>bold</b>"
    view.locator("#text").fill(text)
    expect(view.locator("#translation")).to_have_text(text.upper())
    view.locator("#keep").click()
    expect(view.locator("#history li")).to_have_count(1)
    assert view.locator("main img, aside img, main b, aside b").count() == 0
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


def test_it_recovers_when_the_server_comes_back(browser, base):
    server = start(base)
    port = server.port
    with showing(Settings(f"127.0.0.1:{port}", "upper", example="one", timeout=2)) as page:
        tab = browser.new_page()
        tab.goto(page.address)
        expect(tab.locator("#translation")).to_have_text("ONE")
        server.close()
        tab.locator("#text").fill("two")
        expect(tab.locator("#status.error")).to_contain_text("no answer", timeout=15_000)
        assert "\n" not in tab.locator("#status").text_content()
        server = start(base, port)
        try:
            expect(tab.locator("#translation")).to_have_text("TWO", timeout=30_000)
            expect(tab.locator("#status.error")).to_have_count(0)
        finally:
            tab.close()
            server.close()


def test_an_image_is_read_and_the_region_lights_up(browser, bright, tmp_path, rng):
    path = tmp_path / "image.png"
    Image.fromarray(rng.integers(0, 255, (20, 30)).astype("uint8")).save(path)
    with Reader(bright, "bright") as reader:
        (expected,) = reader.regions([path])
    with tab_on(browser, Settings(bright, "bright")) as tab:
        expect(tab.locator("#pad")).to_be_visible()
        expect(tab.locator("#ask")).to_be_hidden()
        tab.locator("#file").set_input_files(path)
        expect(tab.locator("#said")).to_have_text("abcde (-1.00)")
        expect(tab.locator("#reading-text .unsaid")).to_have_count(0)
        for position, weights in enumerate(expected.attention_weights):
            tab.locator("#reading-text .word").nth(position).hover()
            place = np.unravel_index(np.argmax(weights), np.shape(weights))
            region = tab.locator("#regions").get_attribute("data-region")
            assert region == f"{place[0]},{place[1]}"
        tab.locator("h1").hover()
        assert tab.locator("#regions").get_attribute("data-region") is None
        tab.locator("#file").set_input_files(
            {"name": "x.png", "mimeType": "image/png", "buffer": b"no image"}
        )
        expect(tab.locator("#status.error")).to_contain_text("image 1")


def test_characters_appear_one_after_the_other_unless_motion_is_unwanted(browser, bright, tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(np.full((20, 30), 200, "uint8")).save(path)
    with tab_on(browser, Settings(bright, "bright")) as tab:
        expect(tab.locator("#pad")).to_be_visible()
        tab.clock.install(time=0)
        tab.clock.pause_at(1000)
        tab.locator("#file").set_input_files(path)
        for unsaid in (4, 3, 2):
            expect(tab.locator("#reading-text .unsaid")).to_have_count(unsaid)
            tab.clock.run_for(250)
        tab.clock.resume()
        tab.emulate_media(reduced_motion="reduce")
        tab.locator("#file").set_input_files([])
        tab.locator("#file").set_input_files(path)
        expect(tab.locator("#play")).to_be_hidden()
        expect(tab.locator("#reading-text .unsaid")).to_have_count(0)


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_picture_is_pasted_and_dropped(browser, bright, kind):
    with tab_on(browser, Settings(bright, "bright")) as tab:
        expect(tab.locator("#pad")).to_be_visible()
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


def test_a_drawing_is_read(browser, bright):
    with tab_on(browser, Settings(bright, "bright")) as tab:
        expect(tab.locator("#pad")).to_be_visible()
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


def test_a_history_has_a_timeline_with_the_weight_of_each_event(browser, mean):
    with tab_on(browser, Settings(mean, "mean", example=VISITS)) as tab:
        expect(tab.locator("svg .event")).to_have_count(3)
        weights = [bar.get_attribute("data-weight") for bar in tab.locator("svg .bar").all()]
        assert weights == ["0.5000", "0.0000", "0.5000"]
        tab.locator("svg .event").first.focus()
        assert tab.locator("svg .bar").nth(2).get_attribute("data-weight") == "0.0000"
        expect(tab.locator("#event")).to_contain_text("Time 0: 50 %. bili 0.5, note first")
        tab.locator("#person").select_option("b")
        expect(tab.locator("svg .event")).to_have_count(1)
        expect(tab.locator("#event")).to_contain_text("25 %")
        tab.locator("#table").fill("patient,day,bili\na,3,x")
        expect(tab.locator("#status.error")).to_contain_text("bili to be a number")
        tab.locator("#table").fill(VISITS.replace("first", "<img src=x onerror=alert(1)>"))
        tab.locator("#person").select_option("a")
        expect(tab.locator("svg .event")).to_have_count(3)
        assert tab.locator("main #course img").count() == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["bright", "mean"])
def test_the_other_kinds_fit_the_screen_and_have_names(browser, kind, width, request, tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(np.full((20, 30), 200, "uint8")).save(path)
    settings = Settings(request.getfixturevalue(kind), kind, example=VISITS)
    with tab_on(browser, settings) as tab:
        tab.set_viewport_size({"width": WIDTHS[width], "height": 900})
        if kind == "bright":
            expect(tab.locator("#pad")).to_be_visible()
            tab.locator("#file").set_input_files(path)
        expect(tab.locator("#said" if kind == "bright" else "#event")).not_to_be_empty()
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
        assert nameless(tab) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(view, scheme):
    """WCAG 2 AA: a contrast of 4.5 for all text, words lit by a weight of 1 among it."""
    view.emulate_media(color_scheme=scheme)
    expect(view.locator(".words").nth(1)).to_have_text("ONE TWO THREE")
    view.locator(".words").nth(0).locator(".word").nth(0).hover()
    lit = view.locator(".words").nth(1).locator(".word").nth(0)
    checked = [lit, *(view.locator(css).first for css in ("h1", ".hint", "dt", "button", ".score"))]
    for element in checked:
        text, ground = element.evaluate(
            """e => {
                const grounds = [];
                for (let n = e; n; n = n.parentElement)
                    grounds.push(getComputedStyle(n).backgroundColor);
                return [getComputedStyle(e).color, grounds];
            }"""
        )
        assert contrast(colour(text), blended(ground)) >= 4.5


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_the_screen(view, width):
    view.set_viewport_size({"width": WIDTHS[width], "height": 900})
    expect(view.locator(".words").nth(1)).to_have_text("ONE TWO THREE")
    assert view.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    if folder := os.environ.get("PAGE_SCREENSHOTS"):
        view.screenshot(path=Path(folder) / f"page-{width}.png")


def test_everything_that_can_be_used_has_a_name(view):
    assert nameless(view) == []


def nameless(tab):
    return tab.evaluate(
        """() => [...document.querySelectorAll(
            'button, input, textarea, select, [tabindex="0"]')].filter(
            e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))
            .map(e => e.outerHTML)"""
    )


def colour(text):
    numbers = [float(number) for number in re.findall(r"[\d.]+", text)]
    return (*numbers[:3], numbers[3] if len(numbers) > 3 else 1.0)


def blended(grounds):
    """Blend grounds, the uppermost first, down to the first that lets nothing through."""
    below = (255.0, 255.0, 255.0)
    for *rgb, alpha in reversed([colour(ground) for ground in grounds]):
        below = tuple(alpha * own + (1 - alpha) * old for own, old in zip(rgb, below, strict=True))
    return (*below, 1.0)


def contrast(one, other):
    def luminance(rgb):
        parts = [c / 255 for c in rgb[:3]]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
