"""The code that runs a model in a browser, in one script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from training.command.visible import INVISIBLE
from training.data import rules as table

ENGINE = Path(__file__).parent
# The forms of imports and exports that modules of the page have.
_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def worker() -> str:
    """Return the worker's script."""
    return join("worker", named(ENGINE.glob("*.js")))


def engine() -> str:
    """Return the engine as one module of JavaScript, with the exports of `entry.js`."""
    modules = named(ENGINE.glob("*.js"))
    exported = ", ".join(_EXPORT.findall(modules["entry"]))
    return f"{join('entry', modules)}export const {{ {exported} }} = module_entry;\n"


def named(paths: Iterable[Path]) -> dict[str, str]:
    """Return the text of each module by its name, and `rules`, whose text `rules()` generates."""
    return {"rules": rules(), **{path.stem: path.read_text(encoding="utf-8") for path in paths}}


def rules() -> str:
    """Return `rules.js`: the texts, numbers and sets of `training.data.rules`, for JavaScript.

    `INVISIBLE` of `training.command.visible` is one of them.
    """
    values = {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in vars(table).items()
        if name.isupper() and name[0] != "_" and not isinstance(value, re.Pattern | dict)
    }
    values["INVISIBLE"] = INVISIBLE
    text = "// Made of training/data/rules.py, which explains each.\n"
    for name, value in values.items():
        text += f"export const {name} = {json.dumps(value, ensure_ascii=False)};\n"
    return re.sub(r"\\p\{(\w{3,})\}", r"\\p{Script=\1}", text)


def join(entry: str, modules: Mapping[str, str]) -> str:
    """Return one script with the module `entry` and every module that it imports.

    Each module becomes a function that runs once and returns the module's exports. An import must
    have the form `import { a, b } from "./name.js";`. Raises ValueError for an import or an export
    of another form.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        text = modules[name]
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
