"""Writes the page without a server: a packed model, and the code that runs it in the browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from serving.page._app import MOST_CHARACTERS
from serving.page._card import read_card
from serving.portable.engine._pack import pack
from serving.portable.engine._scripts import ENGINE, engine, join, named, worker
from serving.portable.read._manifest import MANIFEST
from serving.portable.read._model import Folder
from training.command.files import write_text

STATIC = Path(__file__).parent / "static"
STYLES = ("ribbons.css", "page.css")
_STYLE = "\n".join(f'<link rel="stylesheet" href="static/{name}">' for name in STYLES)
_ICON = '<link rel="icon" href="static/icon.svg">'
_SCRIPT = '<script type="module" src="static/page.js"></script>'
_END = "</body>"
# No requests to other hosts, and text from a model cannot become code.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self' data: blob:; "
# Signatures by task. The last of each needs attention.
SIGNATURES = {"translate": ("translate", "nbest", "align"), "read": ("read", "nbest", "regions")}


def write_folder(site: Path, model: bytes) -> None:
    """Write the page as a folder with `index.html`, scripts, styles and the packed model.

    `engine.js` is the engine for programs of the user's own; the page does not load it.
    """
    own = "script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'"
    html = _replaced(
        {
            _STYLE: f"{_policy(own)}\n{_STYLE.replace('static/', '')}",
            _ICON: '<link rel="icon" href="icon.svg">',
            _SCRIPT: '<script src="page.js" defer></script>',
        }
    )
    site.mkdir(parents=True, exist_ok=True)
    for name in (*STYLES, "icon.svg"):
        (site / name).write_bytes((STATIC / name).read_bytes())
    for name, text in {"index.html": html, "page.js": page(), "worker.js": worker()}.items():
        (site / name).write_text(text, encoding="utf-8")
    (site / "engine.js").write_text(engine(), encoding="utf-8")
    (site / "engine.d.ts").write_bytes((ENGINE / "engine.d.ts").read_bytes())
    (site / "model.bin").write_bytes(gzip.compress(model, mtime=0))


def write_file(path: Path, model: bytes) -> None:
    """Write the page as one HTML file that contains scripts, styles and the packed model."""
    style = "".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    icon = _base64((STATIC / "icon.svg").read_bytes())
    script = page()
    own = (
        f"script-src {_hash(script)} 'wasm-unsafe-eval'; style-src {_hash(style)}; worker-src blob:"
    )
    html = _replaced(
        {
            _STYLE: f"{_policy(own)}\n<style>{style}</style>",
            _ICON: f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">',
            _SCRIPT: "",
            _END: f'<script type="text/plain" id="worker">{_packed(worker().encode())}</script>\n'
            f'<script type="text/plain" id="model">{_packed(model)}</script>\n'
            f"<script>{script}</script>\n{_END}",
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)


def page() -> str:
    """Return the page's script. It sends requests to a worker instead of a server."""
    modules = named([*STATIC.glob("*.js"), ENGINE / "packed.js"])
    modules["server"] = (ENGINE / "ask_worker.js").read_text(encoding="utf-8")
    script = join("page", modules)
    # The script must not contain the end of its own HTML element.
    return script.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _replaced(parts: Mapping[str, str]) -> str:
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    for old, new in parts.items():
        before, part, after = html.partition(old)
        assert part, f"index.html has no {old}"
        html = before + new + after
    return html


def _policy(own: str) -> str:
    return f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}{own}">'


def _packed(content: bytes) -> str:
    return _base64(gzip.compress(content, mtime=0))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _hash(text: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'"


def write(export: Path, output: Path, single: bool, example: str = "") -> None:
    """Write the page of a translator or of a reader of images, which runs without a server.

    Args:
        export: a version exported with `--format onnx`, or a model, whose newest such version is
            used.
        output: the folder, or with `single` the HTML file.
        single: whether to write a single HTML file.
        example: the text that the page begins with.

    Raises ValueError if there is no such export, or if the browser engine lacks a part of it;
    OSError if a file cannot be read or written.
    """
    folder = Folder(export)
    task, attends = folder.manifest["task"], folder.manifest["attends"]
    if task not in SIGNATURES:
        needs = "A page without a server needs a model of texts or images"
        raise ValueError(
            f"{export} is a model to {task}. {needs}: start serving.page with --target"
        )
    path = folder.path.resolve()
    numbered = path.name.isdecimal()
    page = {
        "model": path.parent.name if numbered else path.name,
        "version": int(path.name) if numbered else 1,
        "signatures": {name: {} for name in SIGNATURES[task][: None if attends else -1]},
        "card": asdict(read_card(path / MANIFEST)),
        "example": example,
        "most_characters": MOST_CHARACTERS,
    }
    (write_file if single else write_folder)(output, pack(path, folder.manifest, page))
