"""Take the pictures of the page that the documentation shows, of models that were exported.

    python -m tests.page.screenshots --text demo/en-fr/models/en-fr --image models/digits

needs what `make test-page` installs. Pictures go to docs/pictures.
"""

import argparse
import contextlib
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from serving.page.app import Settings
from serving.page.card import read_card
from tests.page.tabs import CHROMIUM, FLAGS, WIDTHS, start
from tests.serving.page.conftest import showing

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TEXT = "She is eating a green apple. He doesn't like apples."


@contextlib.contextmanager
def tab_of(browser, base: Path, example: str = ""):
    """A tab on the page of the newest version under a base path."""
    newest = max(base.glob("[0-9]*"), key=lambda path: int(path.name))
    card = read_card(newest / "assets.extra" / "manifest.json")
    server = start(base.resolve())
    target = f"127.0.0.1:{server.port}"
    try:
        with showing(Settings(target, base.name, card=card, example=example)) as page:
            tab = browser.new_page(viewport={"width": WIDTHS["wide"], "height": 900})
            tab.goto(page.address)
            yield tab
            tab.close()
    finally:
        server.close()


def shoot_text(tab: Page) -> None:
    """A word that others look at, in three widths, and in the dark."""
    expect(tab.locator(".sentence")).to_have_count(2, timeout=60_000)
    for name, width in WIDTHS.items():
        tab.set_viewport_size({"width": width, "height": 900})
        tab.locator(".words").first.locator(".word").nth(4).hover()
        tab.screenshot(path=PICTURES / f"page-{name}.png")
    tab.emulate_media(color_scheme="dark")
    tab.locator(".words").first.locator(".word").nth(4).hover()
    tab.screenshot(path=PICTURES / "page-dark.png")


def shoot_image(tab: Page) -> None:
    """A picture that is read, with the region that one character looked at."""
    from training.sources.image import digits

    expect(tab.locator("#pad")).to_be_visible(timeout=60_000)
    tab.emulate_media(reduced_motion="reduce")
    (example,) = digits.make(1, seed=7, test=True)
    tab.locator("#file").set_input_files(
        {"name": "digits.png", "mimeType": "image/png", "buffer": example.image}
    )
    expect(tab.locator("#reading-text .word").nth(2)).to_be_visible(timeout=60_000)
    tab.locator("#reading-text .word").nth(2).hover()
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
