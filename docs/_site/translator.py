"""The demo's translator on the home page, where `make demo` has made one."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

FILE = Path(__file__).parents[2] / "demo" / "en-fr" / "en-fr.html"
MARK = "<!-- translator -->"
SECTION = """## Try it

English to French, a small vocabulary, in your browser: no server is asked.
[On a page of its own](translator.html){ target=_blank }.

<iframe class="translator" src="translator.html" title="A translator" sandbox="allow-scripts"
  loading="lazy"></iframe>
"""


def on_files(files: Files, config: Any) -> Files:
    """Add its file, which takes no keys while it is part of another page."""
    if FILE.is_file():
        page = FILE.read_text(encoding="utf-8").replace(" autofocus>", ">", 1)
        files.append(File.generated(config, "translator.html", content=page))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Show it where the page has a mark."""
    return markdown.replace(MARK, SECTION if FILE.is_file() else "")
