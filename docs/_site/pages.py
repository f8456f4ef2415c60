"""Pages of the site that are not files of docs/: README and the like, and the public names."""

import ast
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from formulas import Formulas, block  # beside this file
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
COPIES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
REFERENCE = tomllib.loads((Path(__file__).parent / "reference.toml").read_text(encoding="utf-8"))
GROUPS, FORMULAS = REFERENCE["groups"], REFERENCE["formulas"]
MECHANISMS = {n for n in GROUPS[0]["names"] if n.endswith("Attention")}
# The model's page has these, too.
SHARED = {
    f"assets/{n}": ROOT / "serving" / "page" / "static" / n
    for n in ("look.js", "ribbons.js", "ribbons.css")
}


def first_lines() -> dict[str, str]:
    """Return the first sentence of each public name's docstring, without importing Keras."""
    package = ROOT / "keras_attention"
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        for name in (alias.name for alias in node.names):
            path = ROOT.joinpath(*(node.module or "").split("."))
            path = path / name if node.module == "keras_attention" else path
            found[name] = _first_line(path, name)
    return found


def _first_line(path: Path, name: str) -> str:
    """Return that of a module, or of a class or function in it or in a file of its folder."""
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    files.sort(key=lambda file: file.stem != "__init__")
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inside = [node for node in tree.body if getattr(node, "name", "") == name]
        if inside or file.stem == name or path.name == name:
            text = ast.get_docstring(inside[0] if inside else tree) or ""
            return " ".join(text.partition("\n\n")[0].split())
    return ""


def api_page(name: str) -> str:
    """Return the page of a public name: formula, paper, picture, then the docstring.

    A module's page and the base class's show all that is there. What a mechanism overrides is told
    on the page of the base class.
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
    return f"# {name}\n\n{formula}::: keras_attention.{name}\n    options:\n{shown}"


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
    """Leave only the text of links to files that the site does not have."""

    def kept(found: re.Match[str]) -> str:
        here = posixpath.dirname(page.file.src_uri)
        target = posixpath.normpath(posixpath.join(here, found[2].partition("#")[0]))
        target = target.removeprefix("../")  # of docs/
        target = COPIES.get(target, target)
        if files.get_file_from_path(target) is None:
            return f"`{found[1].strip('![]`')}`"
        return f"{found[1]}({posixpath.relpath(target, here or '.')}{found[3] or ''})"

    return re.sub(r"(!?\[[^\]]+\])\((?!https?:|#)([^)#]+)(#[^)]*)?\)", kept, markdown)
