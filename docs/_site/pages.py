"""Pages of the site that are not files of docs/: README and the like, and the public names."""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
COPIES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def public_names() -> list[str]:
    """Return `keras_attention.__all__` without importing Keras."""
    tree = ast.parse((ROOT / "keras_attention" / "__init__.py").read_text(encoding="utf-8"))
    (names,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    return ast.literal_eval(names)


def api_page(name: str) -> str:
    """Return the page of a public name; a module's and the base class's show all that is there."""
    shown = {"Attention": "inherited_members"}.get(name, "members" if name.islower() else "")
    options = f"\n    options:\n      {shown}: true" if shown else ""
    return f"::: keras_attention.{name}{options}\n"


def on_config(config: Any) -> Any:
    """Give every public name its place in the navigation, classes first."""
    names = sorted(public_names(), key=lambda name: (name.islower(), name))
    config.nav.insert(2, {"API": [{name: f"api/{name}.md"} for name in names]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for source, page in COPIES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    for name in public_names():
        files.append(File.generated(config, f"api/{name}.md", content=api_page(name)))
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
