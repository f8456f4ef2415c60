"""JavaScript modules joined to one classic script, which runs from a file and in any worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


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
