"""The page without a server, in a real browser: from a file, and from a static host."""

import functools
import http.server
import threading

import numpy as np
import pytest
from playwright.sync_api import expect

from serving.page._files import write
from serving.portable.read import LocalReader, LocalTranslator
from tests.page.tabs import tab_at, weights_shown
from tests.serving.conftest import image_run, onnx_reader, onnx_translator  # noqa: F401
from tests.serving.portable.engine.conftest import versions  # noqa: F401
from training.data.read import texts as corpus
from training.sources.image import _digits as digits

EXAMPLE = "She is eating a green apple. He sleeps."
ASK = """async (texts) => {
    const { ask } = module_server;
    const found = [];
    for (const text of texts) found.push((await ask("api/translate", { text })).sentences);
    return found;
}"""


@pytest.fixture(scope="module")
def one_file(versions, tmp_path_factory):  # noqa: F811
    path = tmp_path_factory.mktemp("site") / "a page.html"
    write(versions["float32"], path, single=True, example=EXAMPLE)
    return path


@pytest.fixture(scope="module")
def folder(versions, tmp_path_factory):  # noqa: F811
    path = tmp_path_factory.mktemp("site") / "site"
    write(versions["int8"], path, single=False, example=EXAMPLE)
    return path


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture
def address(folder):
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def best(version, text):
    return [each.text for each in LocalTranslator(version).translate(text)]


def test_a_file_translates_as_one_types_and_asks_nobody(browser, one_file, versions):  # noqa: F811
    with tab_at(browser, one_file.as_uri()) as (tab, asked):
        wanted = best(versions["float32"], ["She is eating a green apple.", "He sleeps."])
        expect(tab.locator("#translation")).to_have_text(" ".join(wanted))
        expect(tab.locator("#status")).to_contain_text("old, version 1, in this browser")
        expect(tab.locator("progress")).to_have_count(0)
        expect(tab.locator(".sentence")).to_have_count(2)
        tab.locator("#text").fill("She sleeps.")
        expect(tab.locator("#translation")).to_have_text(best(versions["float32"], ["She sleeps."]))
        expect(tab.locator("#hypotheses li")).to_have_count(2)
        tab.locator(".words").first.locator(".word").first.hover()
        (aligned,) = LocalTranslator(versions["float32"]).align(["She sleeps."])
        column = [row[0] for row in aligned.attention_weights]
        assert weights_shown(tab, 1) == pytest.approx(column, abs=1e-3)
        assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [tab.url]
        tab.locator("#share").click()
        expect(tab.locator("#shared")).to_contain_text("link")
        link = tab.url
    with tab_at(browser, link) as (tab, _):
        expect(tab.locator("#text")).to_have_value("She sleeps.")


def test_nothing_can_be_fetched_from_a_file(browser, one_file):
    tab = browser.new_page()
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(one_file.as_uri())
    tab.evaluate("fetch('https://example.org').catch(() => null)")
    assert any("Content Security Policy" in line for line in said)
    tab.close()


@pytest.mark.parametrize("vectors", [True, False])
def test_texts_are_those_of_the_local_translator(browser, one_file, versions, vectors):  # noqa: F811
    texts = corpus.load("phrasebook-en-fr", "dev", limit=40, seed=5).sources
    if not vectors:  # as where WebAssembly is switched off
        path = one_file.with_name("plain.html")
        path.write_text(
            one_file.read_text(encoding="utf-8").replace("new WebAssembly.Module", "new Missing"),
            encoding="utf-8",
        )
        one_file = path
    with tab_at(browser, one_file.as_uri()) as (tab, _):
        expect(tab.locator(".sentence")).to_have_count(2)
        found = tab.evaluate(ASK, texts)
    assert [each["text"] for (each,) in found] == best(versions["float32"], texts)


def test_a_folder_is_loaded_once_and_works_offline(browser, address, versions):  # noqa: F811
    with tab_at(browser, address) as (tab, asked):
        expect(tab.locator(".sentence")).to_have_count(2)
        names = ["", "icon.svg", "model.bin", "page.css", "page.js", "ribbons.css", "worker.js"]
        assert sorted({*asked}) == [address + name for name in names]
        tab.context.set_offline(True)
        tab.locator("#text").fill("She sleeps.")
        expect(tab.locator("#translation")).to_have_text(best(versions["int8"], ["She sleeps."]))
        once = [url for url in asked if not url.endswith("icon.svg")]  # the tab's and the page's
        assert len(once) == len({*once})


def test_a_model_that_does_not_come_is_an_error_and_is_asked_for_again(browser, address, folder):
    (folder / "model.bin").rename(folder / "away")
    with tab_at(browser, address) as (tab, _):
        expect(tab.locator("#status.error")).to_contain_text("cannot be loaded: status 404")
        (folder / "away").rename(folder / "model.bin")
        expect(tab.locator(".sentence")).to_have_count(2, timeout=20_000)


def test_a_text_that_is_too_long_is_refused_in_a_line(browser, one_file):
    with tab_at(browser, one_file.as_uri()) as (tab, _):
        tab.locator("#text").fill("a. " * 70)
        expect(tab.locator("#status.error")).to_have_text(
            "Give at most 64 sentences at once. These are 70"
        )
        tab.locator("#text").fill("She sleeps.")
        expect(tab.locator(".sentence")).to_have_count(1)


def test_an_image_is_read_and_the_region_lights_up(browser, onnx_reader, tmp_path):  # noqa: F811
    write(onnx_reader, tmp_path / "page.html", single=True)
    (image,) = digits.make(1, seed=9).sources
    (wanted,) = LocalReader(onnx_reader).regions([image])
    with tab_at(browser, (tmp_path / "page.html").as_uri()) as (tab, asked):
        expect(tab.locator("#pad")).to_be_visible()
        file = {"name": "digits.png", "mimeType": "image/png", "buffer": image}
        tab.locator("#file").set_input_files(file)
        expect(tab.locator("#said")).to_have_text(f"{wanted.text} ({wanted.score:.2f})")
        tab.locator("#reading-text .word").first.hover()
        looked = np.array(wanted.attention_weights[0])
        row, column = np.unravel_index(looked.argmax(), looked.shape)
        expect(tab.locator("#regions")).to_have_attribute("data-region", f"{row},{column}")
        file["buffer"] = b"no image"
        tab.locator("#file").set_input_files(file)
        expect(tab.locator("#status.error")).to_contain_text("image 1 is neither PNG nor JPEG")
        assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [tab.url]
