"""The page without a server: a folder that any host serves, or one HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from training.command.files import write_text

# The forms of imports and exports that modules of the page have.
_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)

_PAGE = Path(__file__).parents[1]
STATIC, ENGINE = _PAGE / "static", _PAGE / "engine"
STYLES = ("ribbons.css", "page.css")
_STYLE = "\n".join(f'<link rel="stylesheet" href="static/{name}">' for name in STYLES)
_ICON = '<link rel="icon" href="static/icon.svg">'
_SCRIPT = '<script type="module" src="static/page.js"></script>'
_END = "</body>"
# Nothing is asked of any host, and text from a model can not become code.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self' data: blob:; "


def write_folder(site: Path, model: bytes) -> None:
    """Write a folder."""
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
    (site / "model.bin").write_bytes(gzip.compress(model, mtime=0))


def write_file(path: Path, model: bytes) -> None:
    """Write one HTML file, with the arguments of `write_folder`."""
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
    """Return the page's script, which asks a worker where the served page asks its server."""
    modules = _named([*STATIC.glob("*.js"), ENGINE / "packed.js"])
    script = join("page", {**modules, "server": ENGINE / "ask_worker.js"})
    # It must not end the HTML element that it stands in.
    return script.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def worker() -> str:
    """Return the worker's script."""
    return join("worker", _named(ENGINE.glob("*.js")))


def _named(paths: Iterable[Path]) -> dict[str, Path]:
    return {path.stem: path for path in paths}


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


def join(entry: str, modules: Mapping[str, Path]) -> str:
    """Return the script of a module and of all that it imports.

    Every module becomes a function that runs once and returns what it exports.

    Args:
        entry: name of the module that is run.
        modules: files by name, which are imported as `import { a, b } from "./name.js";`.

    Raises:
        ValueError: for an import or an export of another form.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        text = modules[name].read_text(encoding="utf-8")
        for _, other in _IMPORT.findall(text):
            add(other)
        done[name] = _function(name, text)

    add(entry)
    return '"use strict";\n' + "".join(done.values())


def _function(name: str, text: str) -> str:
    exported = ", ".join(_EXPORT.findall(text))
    text = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = module_\2;", text))
    if left := _LEFT.search(text):
        raise ValueError(f"{name}.js expected imports and exports of one line. Received: {left[0]}")
    return f"const module_{name} = (() => {{\n{text}return {{ {exported} }};\n}})();\n"
