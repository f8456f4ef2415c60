"""Pages of the site that are not files of docs/: README and the like, and the public names."""

from __future__ import annotations

import ast
import functools
import posixpath
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from formulas import Formulas, block  # beside this file
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
COPIES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
REFERENCE = tomllib.loads((Path(__file__).parent / "reference.toml").read_text(encoding="utf-8"))
GROUPS, FORMULAS = REFERENCE["groups"], REFERENCE["formulas"]
MECHANISMS = {n for n in GROUPS[0]["names"] if n.endswith("Attention")}
WIDTH = 72  # of a signature on one line
Definition = ast.Module | ast.ClassDef | ast.FunctionDef
# The model's page has these, too.
SHARED = {
    f"assets/{n}": ROOT / "serving" / "page" / "static" / n
    for n in ("look.js", "ribbons.js", "ribbons.css")
}


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
    """Return the function that a call of a name calls: of a class its own or its public base's."""
    if isinstance(node, ast.FunctionDef):
        return node
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return each
    bases = {getattr(each, "id", "") for each in getattr(node, "bases", [])} & set(public())
    return _called(public()[bases.pop()]) if bases else None


def _arguments(given: ast.arguments) -> list[str]:
    """Return the arguments one by one, with their defaults."""
    needed = len(given.args) - len(given.defaults)
    found = _with_defaults(given.args, [None] * needed + given.defaults)
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


def api_page(name: str) -> str:
    """Return the page of a public name: formula, paper, picture, then the docstring.

    A module's page and the base class's show all that is there. Methods that a mechanism overrides
    are told on the page of the base class.
    """
    options = ["show_root_heading: false", "heading_level: 2"]
    if name == "Attention":
        options.append("inherited_members: true")
    elif (path := ROOT / "keras_attention" / name).is_dir() or path.with_suffix(".py").exists():
        options.append(f"members: {own_names(path)}")
    elif name in MECHANISMS:
        options.append("members: false")
    formula = _formula(FORMULAS[name]) if name in FORMULAS else ""
    shown = "".join(f"      {option}\n" for option in options)
    return (
        f"# {name}\n\n{formula}{signature(name)}::: keras_attention.{name}\n    options:\n{shown}"
    )


def own_names(module: Path) -> list[str]:
    """Return the public names that a module defines, without those that it imports."""
    path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    names = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = getattr(node, "targets", [node])
        names += [getattr(one, "name", getattr(one, "id", "_")) for one in targets]
    return [name for name in names if not name.startswith("_")]


def _formula(one: dict[str, str]) -> str:
    paper = one["source"]
    if "arxiv" in one:
        paper += f", [arXiv {one['arxiv']}](https://arxiv.org/abs/{one['arxiv']})"
    if "equation" in one:
        paper += f", {one['equation']}"
    found = f"```math\n{one['latex']}\n```\n\n*{paper}*\n\n".replace("**", "*")
    if "picture" in one:
        path = f"../pictures/mechanisms/{one['picture']}.svg"
        found += f"![Its weights on one sentence of a small translator]({path}){{ .weights }}\n\n"
    return found


def overview() -> str:
    """Return the page with one line for each public name."""
    lines = first_lines()
    parts = ["# API\n\n`from keras_attention import …`: each public name in one line.\n"]
    for group in GROUPS:
        rows = "\n".join(f"| [`{n}`]({n}.md) | {_cell(lines[n])} |" for n in group["names"])
        parts.append(f"## {group['title']}\n\n{group['about']}\n\n| | |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _cell(line: str) -> str:
    return line.replace("|", "\\|")


def on_config(config: Any) -> Any:
    """Give every public name its place in the navigation, and formulas their form."""
    groups = [{g["title"]: [{n: f"api/{n}.md"} for n in g["names"]]} for g in GROUPS]
    place = next(n for n, one in enumerate(config.nav) if "API" in one)
    config.nav[place] = {"API": ["api/index.md", *groups]}
    config.markdown_extensions.append(Formulas())
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "formula", "format": block}]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    made = {page: (ROOT / source).read_text(encoding="utf-8") for source, page in COPIES.items()}
    made = {page: text.replace("](docs/", "](") for page, text in made.items()}
    made |= {f"api/{n}.md": api_page(n) for group in GROUPS for n in group["names"]}
    made |= {"api/index.md": overview()}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for page, path in SHARED.items():
        files.append(File.generated(config, page, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Leave only the text of links to files that the site does not have; find logs last."""
    if page.file.src_uri.startswith(("log/", "changelog")):
        page.meta["search"] = {"boost": 0.2}

    def kept(found: re.Match[str]) -> str:
        here = posixpath.dirname(page.file.src_uri)
        target = posixpath.normpath(posixpath.join(here, found[2].partition("#")[0]))
        target = target.removeprefix("../")  # of docs/
        target = COPIES.get(target, target)
        if files.get_file_from_path(target) is None:
            return f"`{found[1].strip('![]`')}`"
        return f"{found[1]}({posixpath.relpath(target, here or '.')}{found[3] or ''})"

    return re.sub(r"(!?\[[^\]]+\])\((?!https?:|#)([^)#]+)(#[^)]*)?\)", kept, markdown)
