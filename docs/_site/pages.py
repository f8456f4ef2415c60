"""Pages of the site that are not files of docs/: README and the like, and the public names."""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from arguments import REFERENCE, ROOT, cell, first_lines, groups, signature  # beside this file
from formulas import Formulas, block
from mkdocs.structure.files import File, Files
from pymdownx.superfences import fence_code_format

COPIES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
FORMULAS = REFERENCE["formulas"]
MECHANISMS = {n for n in groups()[0]["names"] if n.endswith("Attention")}
# The model's page has these, too.
SHARED = {
    f"assets/{n}": ROOT / "serving" / "page" / "static" / n
    for n in ("look.js", "ribbons.js", "ribbons.css")
}


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
    for group in groups():
        rows = "\n".join(f"| [`{n}`]({n}.md) | {cell(lines[n])} |" for n in group["names"])
        parts.append(f"## {group['title']}\n\n{group['about']}\n\n| | |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def on_config(config: Any) -> Any:
    """Give every public name its place in the navigation, and formulas their form."""
    listed = [{g["title"]: [{n: f"api/{n}.md"} for n in g["names"]]} for g in groups()]
    for tab in config.nav:
        for pages in tab.values():
            place = next((n for n, page in enumerate(pages) if "API" in page), None)
            if place is not None:
                pages[place] = {"API": ["api/index.md", *listed]}
    config.markdown_extensions.append(Formulas())
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    output = {"name": "text", "class": "output", "format": fence_code_format}
    fences["custom_fences"] = [{"name": "math", "class": "formula", "format": block}, output]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    made = {page: (ROOT / source).read_text(encoding="utf-8") for source, page in COPIES.items()}
    made = {page: text.replace("](docs/", "](") for page, text in made.items()}
    made |= {f"api/{n}.md": api_page(n) for group in groups() for n in group["names"]}
    made |= {"api/index.md": overview()}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for page, path in SHARED.items():
        files.append(File.generated(config, page, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Leave only the text of links to files that the site does not have; rank changes last."""
    if page.file.src_uri.startswith("changelog"):
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
