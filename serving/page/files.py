"""The page without a server: a model in one file, and the code that runs it in the browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from serving.client.local.manifest import MANIFEST, read_vocabulary
from serving.client.local.model import Folder
from serving.page.app import MOST_CHARACTERS
from serving.page.card import read_card
from serving.page.graphs import Numbers, read_graph
from training.command.files import write_text

_MODELS = {1: "unigram", 2: "bpe"}
_TYPES = {1, 2, 3}  # pieces that are normal, unknown or control
_SETTINGS = ("beam_width", "num_results", "length_penalty", "max_source_length")
# The forms of imports and exports that modules of the page have.
_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_PAGE = Path(__file__).parent
STATIC, ENGINE = _PAGE / "static", _PAGE / "engine"
STYLES = ("ribbons.css", "page.css")
_STYLE = "\n".join(f'<link rel="stylesheet" href="static/{name}">' for name in STYLES)
_ICON = '<link rel="icon" href="static/icon.svg">'
_SCRIPT = '<script type="module" src="static/page.js"></script>'
_END = "</body>"
# Nothing is asked of any host, and text from a model can not become code.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self' data: blob:; "
# By task; of each the last is there where the model attends.
SIGNATURES = {"translate": ("translate", "nbest", "align"), "read": ("read", "nbest", "regions")}


def pack(folder: Path, manifest: dict[str, Any], page: dict[str, Any]) -> bytes:
    """Return the file of an ONNX export.

    Raises ValueError for a part of it that the browser's runtime does not have; OSError if a file
    cannot be read.
    """
    numbers, settings = Numbers(), manifest["settings"]
    header = {
        "graphs": {
            name: read_graph(folder / f"{name}.onnx", numbers) for name in ("encoder", "step")
        },
        "memory": manifest["graphs"]["memory"],
        "state": manifest["graphs"]["state"],
        "settings": {name: settings[name] for name in _SETTINGS if name in settings},
        "attends": manifest["attends"],
        "page": page,
    }
    if manifest["task"] == "read":
        longest = manifest["runs"][0]["config"]["max_target_length"]
        header["image"] = {**manifest["source"], "longest": longest}
    for side, about in manifest["tokenizers"].items():
        header[side] = read_tokenizer(folder, about, numbers)
    return join_parts(header, numbers)


def join_parts(header: dict[str, Any], numbers: Numbers) -> bytes:
    """Return a file: the header's length, the header, and the numbers."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)  # numbers begin at a multiple of four
    return struct.pack("<I", len(text)) + text + numbers.tobytes()


def read_tokenizer(folder: Path, entry: dict[str, Any], numbers: Numbers) -> dict[str, Any]:
    """Return a tokenizer as `engine/sentencepiece.js` or `engine/vocabulary.js` take it.

    Raises ValueError for a model of another type, or with other pieces.
    """
    path, kind = folder / entry["file"], entry["kind"]
    if kind != "sentencepiece":
        return read_vocabulary(folder, entry)
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError:
        raise ValueError(f"{path} cannot be read: it is no model of sentencepiece") from None
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    types = {piece.type for piece in model.pieces}
    if trainer.model_type not in _MODELS or types - _TYPES or trainer.treat_whitespace_as_suffix:
        raise ValueError(
            f"{path} expected a unigram or BPE model with pieces of its own. Received: type "
            f"{trainer.model_type} with pieces of types {sorted(types)}"
        )

    def place(values: Any, dtype: str) -> list[int]:
        array = np.asarray(values, dtype)
        return [numbers.add(array), array.size]

    return {
        "kind": kind,
        "model": _MODELS[trainer.model_type],
        "pieces": [piece.piece for piece in model.pieces],
        "scores": place([piece.score for piece in model.pieces], "float32"),
        "types": place([piece.type for piece in model.pieces], "uint8"),
        "rules": place(np.frombuffer(normalizer.precompiled_charsmap, "uint8"), "uint8"),
        "prefix": normalizer.add_dummy_prefix,
        "trim": normalizer.remove_extra_whitespaces,
    }


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
    """Return the script of a module, named `entry`, and of all that it imports.

    Every module becomes a function that runs once and returns what it exports. They are imported as
    `import { a, b } from "./name.js";`. Raises ValueError for an import or an export of another
    form.
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


def write(export: Path, output: Path, single: bool, example: str = "") -> None:
    """Write the page of a translator, or of a reader of images, as a folder or a single HTML file.

    `export` is a version that was exported with `--format onnx`, or the model, of whose versions
    the last is taken; `example` is a text to begin with. Raises ValueError for an export that is
    none, or one with parts that a browser has no form of; OSError if a file cannot be read or
    written.
    """
    folder = Folder(export)
    task, attends = folder.manifest["task"], folder.manifest["attends"]
    if task not in SIGNATURES:
        raise ValueError(f"{export} expected a model to translate or to read. Received: to {task}")
    _check_search(export, folder.manifest)
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


def _check_search(export: Path, manifest: dict[str, Any]) -> None:
    """Raise a ValueError, which names it, for what the browser's search does not know."""
    settings = manifest["settings"]
    unknown = {
        "one that copies": manifest.get("copies"),
        "--coverage-penalty": settings.get("coverage_penalty"),
        "--replace-unknown": settings.get("replaces_unknown"),
    }
    for what, value in unknown.items():
        if value:
            raise ValueError(f"{export} expected an export for a page. Received: {what}")
