"""Take the pictures of the page that the documentation shows, of models exported as ONNX.

    python -m tests.page.screenshots --text demo/en-fr/onnx/en-fr --image models/digits

needs what `make test-page` installs. Pictures go to docs/pictures.
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from serving.page.files import write
from tests.page.tabs import CHROMIUM, FLAGS, WIDTHS

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TEXT = "She is eating a green apple."


@contextlib.contextmanager
def tab_of(browser, export: Path, example: str = ""):
    """A tab on the page, without a server, of the newest version of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        write(export, path, single=True, example=example)
        tab = browser.new_page(viewport={"width": WIDTHS["wide"], "height": 880})
        tab.emulate_media(reduced_motion="reduce")
        tab.goto(path.as_uri())
        yield tab
        tab.close()


def shoot_text(tab: Page) -> None:
    """All ribbons; a word's own on a telephone; and in the dark."""
    expect(tab.locator("#hypotheses li")).to_have_count(3, timeout=60_000)
    tab.screenshot(path=PICTURES / "page-wide.png")
    tab.emulate_media(color_scheme="dark")
    tab.screenshot(path=PICTURES / "page-dark.png")
    tab.emulate_media(color_scheme="light")
    tab.set_viewport_size({"width": WIDTHS["narrow"], "height": 800})
    tab.locator(".words.to .word").nth(4).hover()
    tab.screenshot(path=PICTURES / "page-narrow.png")


def shoot_image(tab: Page) -> None:
    """An example that is read, with the region that one character looked at."""
    expect(tab.locator("#said")).not_to_be_empty(timeout=60_000)
    before = tab.locator("#said").text_content()
    tab.locator("#examples button").nth(4).click()
    expect(tab.locator("#said")).not_to_have_text(before)
    tab.locator("#reading-text .word").nth(3).hover()
    tab.screenshot(path=PICTURES / "page-image.png")


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="base path of a translator")
    parser.add_argument("--image", type=Path, help="base path of a reader of images")
    arguments = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=FLAGS.split()
        )
        if arguments.text:
            with tab_of(browser, arguments.text, TEXT) as tab:
                shoot_text(tab)
        if arguments.image:
            with tab_of(browser, arguments.image) as tab:
                shoot_image(tab)
        browser.close()


if __name__ == "__main__":
    main()
