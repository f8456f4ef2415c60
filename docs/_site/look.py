"""Measure pages of the built site in headless Chromium, and take pictures of them.

    make docs && python docs/_site/look.py [--translator FILE.html] [--pictures DIR]

Prints, for each page, in light and dark: kilobytes that the site sent, in how many answers; the
first paint in milliseconds; findings of axe against WCAG 2.2 AA, contrast and all else; lines on
the console; widths at which the page is wider than the screen. Needs what `make test-page`
installs. Texts are packed by gzip, as static hosts do. FILE.html, which `serving.page --static
--single-file` wrote, is opened from the disk. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import http.server
import json
import mimetypes
import os
import shutil
import threading
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

SITE = Path(__file__).parents[2] / "site"
PAGES = ("", "attention-seen/", "api/AdditiveAttention/", "results/", "guides/own-data/")
WIDTHS = (390, 820, 1280, 1440)
TEXTS = (".html", ".css", ".js", ".json", ".svg", ".xml")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
PAINT = """() => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    return paint ? Math.round(paint.startTime) : null;
}"""


class Packed(http.server.BaseHTTPRequestHandler):
    """Serves a folder without a log, texts packed by gzip; counts the bytes of each answer."""

    folder: Path
    sent: list[int]

    def log_message(self, *words: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer with a file."""
        path = self.folder / self.path.partition("?")[0].lstrip("/")
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", mimetypes.guess_type(path)[0] or "text/plain")
        if path.suffix in TEXTS:
            content = gzip.compress(content)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.sent.append(len(content))


def look(browser: Browser, address: str, scheme: str, pictures: Path | None) -> dict[str, Any]:
    """Return what is found on a page; its pictures are written on the way."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page, said = context.new_page(), []
    page.on("console", lambda line: said.append(line.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    Packed.sent = []
    page.goto(address, wait_until="networkidle")
    file = Path(address.removeprefix("file://"))
    sent = [file.stat().st_size] if file.is_file() else Packed.sent
    found = {
        "kilobytes": round(sum(sent) / 1000),
        "answers": len(sent),
        "paint": page.evaluate(PAINT),
    }
    violations = Axe().run(page, options=RULES).response["violations"]
    found["axe"] = [f"{one['id']} × {len(one['nodes'])}" for one in violations]
    found["console"] = said
    found["too wide at"] = [
        width for width in WIDTHS if is_too_wide(page, width, scheme, address, pictures)
    ]
    context.close()
    return found


def is_too_wide(page: Page, width: int, scheme: str, address: str, pictures: Path | None) -> bool:
    """Whether a page has to be moved sideways at this width."""
    page.set_viewport_size({"width": width, "height": 900})
    if pictures:
        name = address.split("/", 3)[3].strip("/").replace("/", "-") or "home"
        page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png")
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--site", type=Path, default=SITE, metavar="DIR", help="the built site")
    parser.add_argument(
        "--translator", type=Path, metavar="FILE", help="a page of serving.page --single-file"
    )
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="where to write pictures")
    parser.add_argument("pages", nargs="*", metavar="PAGE", default=PAGES, help="of the site")
    arguments = parser.parse_args()
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    Packed.folder = arguments.site
    rows = {}
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Packed) as server,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        addresses = {
            page or "home": f"http://127.0.0.1:{server.server_port}/{page}"
            for page in arguments.pages
        }
        if arguments.translator:
            addresses["translator"] = arguments.translator.absolute().as_uri()
        for name, address in addresses.items():
            for scheme in ("light", "dark"):
                rows[f"{name}, {scheme}"] = row = look(browser, address, scheme, arguments.pictures)
                print(
                    name,
                    scheme,
                    *(f"{key}: {value}" for key, value in row.items()),
                    sep="  ",
                    flush=True,
                )
        browser.close()
        server.shutdown()
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
