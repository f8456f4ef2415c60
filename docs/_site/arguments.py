"""Signatures and docstrings of the public names, read without importing Keras."""

from __future__ import annotations

import ast
import functools
import re
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REFERENCE = tomllib.loads((Path(__file__).parent / "reference.toml").read_text(encoding="utf-8"))
WIDTH = 72  # of a signature on one line
Definition = ast.Module | ast.ClassDef | ast.FunctionDef


@functools.cache
def public() -> dict[str, Definition]:
    """Return the definition of each public name, without importing Keras."""
    package = ROOT / "keras_attention"
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        for name in (alias.name for alias in node.names):
            path = ROOT.joinpath(*(node.module or "").split("."))
            path = path / name if node.module == "keras_attention" else path
            if definition := _definition(path, name):
                found[name] = definition
    return found


def _definition(path: Path, name: str) -> Definition | None:
    """Return a module, or a class or function in it or in a file of its folder."""
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    files.sort(key=lambda file: file.stem != "__init__")
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return node
        if file.stem == name or path.name == name:
            return tree
    return None


@functools.cache
def groups() -> list[dict[str, Any]]:
    """Return the groups of public names; mechanisms that no group names are in the first."""
    found = [{**group, "names": list(group["names"])} for group in REFERENCE["groups"]]
    named = {name for group in found for name in group["names"]}
    others = public().keys() - named
    found[0]["names"] += sorted(name for name in others if name.endswith("Attention"))
    return found


def first_lines() -> dict[str, str]:
    """Return the first sentence of each public name's docstring."""
    texts = {name: ast.get_docstring(node) or "" for name, node in public().items()}
    return {name: " ".join(text.partition("\n\n")[0].split()) for name, text in texts.items()}


def signature(name: str) -> str:
    """Return how a class or function is called, as a block of code; nothing of other names."""
    function = _called(public()[name])
    if function is None:
        return ""
    arguments = _arguments(function.args)
    call = f"{name}({', '.join(arguments)})"
    if len(call) > WIDTH:
        call = "\n    ".join([f"{name}(", *(f"{each}," for each in arguments)]) + "\n)"
    return f"```python\n{call}\n```\n\n"


def _called(node: Definition) -> ast.FunctionDef | None:
    """Return the function that a call of a name calls: of a class its own or its base's."""
    if isinstance(node, ast.FunctionDef):
        return node
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return each
    bases = {getattr(each, "id", "") for each in getattr(node, "bases", [])} & set(_classes())
    return _called(_classes()[bases.pop()]) if bases else None


@functools.cache
def _classes() -> dict[str, ast.ClassDef]:
    """Return each class of the package, public or not, by its name."""
    files = (ROOT / "keras_attention").rglob("*.py")
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    nodes = (node for tree in trees for node in tree.body)
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def _arguments(given: ast.arguments) -> list[str]:
    """Return the arguments one by one, with their defaults."""
    positional = [*given.posonlyargs, *given.args]
    needed = len(positional) - len(given.defaults)
    found = _with_defaults(positional, [None] * needed + given.defaults)
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if given.vararg or given.kwonlyargs:
        found.append(f"*{given.vararg.arg if given.vararg else ''}")
    found += _with_defaults(given.kwonlyargs, given.kw_defaults)
    if given.kwarg:
        found.append(f"**{given.kwarg.arg}")
    return [each for each in found if each != "self"]


def _with_defaults(names: list[ast.arg], defaults: Sequence[ast.expr | None]) -> list[str]:
    return [
        name.arg if default is None else f"{name.arg}={ast.unparse(default)}".replace("'", '"')
        for name, default in zip(names, defaults, strict=True)
    ]


def cell(line: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(line.split()).replace("|", "\\|")


def sections(name: str) -> dict[str, str]:
    """Return the sections of a docstring by their titles; the text before the first is ""."""
    parts = re.split(r"^([A-Z][a-z]+(?: [a-z]+)?):(?=\s)", _docstring(name), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], map(_body, parts[2::2]), strict=True))}


def _body(text: str) -> str:
    """Return a section: its lines that are indented, or the paragraph that goes on in its line."""
    block = re.match(r"(?:\n(?:    .*|))+", text)
    return textwrap.dedent(block[0] if block else text.partition("\n\n")[0])


def _docstring(name: str) -> str:
    node = public()[name]
    return ast.get_docstring(node) or ""
