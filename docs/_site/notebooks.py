"""Write the notebooks of the guides, which are their one source: python docs/_site/notebooks.py.

A guide's text and code become cells, in order: `python` blocks as they stand, `bash` blocks as
cells for bash, other blocks as text. A cell before them installs the package.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
# The packages that each guide installs: the layers with a backend, or the programs too.
INSTALLED = {
    "from-addons": "training",
    "own-model": "training",
    "own-data": "dev",
    "recipes": "training",
}
INSTALL = """\
# The git address of this repository. A notebook that lies in a clone of it needs none.
REPOSITORY = ""

import os

if os.path.exists("../../setup.py"):
    %cd -q ../..
elif not os.path.exists("setup.py"):
    !git clone --quiet {{REPOSITORY}} keras-attention
    %cd -q keras-attention
%pip install --quiet -e '.[{extra}]'
"""


def code(text: str) -> dict[str, Any]:
    """Return a cell of code."""
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}}
    return {**cell, "outputs": [], "source": text.rstrip().splitlines(keepends=True)}


def markdown(text: str) -> dict[str, Any]:
    """Return a cell of text, with links as they are from the notebooks' folder."""
    text = re.sub(r"\s(?:It is|This guide is also)\s\[a notebook\]\([^)]*\)(?:, too)?\.", "", text)
    text = re.sub(r"\]\((?!https?:|#|\.\./)", "](../guides/", text)
    return {
        "cell_type": "markdown",
        "metadata": {},
        "source": text.strip().splitlines(keepends=True),
    }


def notebook(guide: str, extra: str) -> str:
    """Return the notebook of a guide.

    Args:
        guide: its Markdown.
        extra: of the package, what is installed first.
    """
    cells = [code(INSTALL.format(extra=extra))]
    text = ""
    for part in re.split(r"(^```.*?^```\n)", guide, flags=re.DOTALL | re.MULTILINE):
        found = re.fullmatch(r"```(python|bash)\n(.*?)```\n", part, re.DOTALL)
        if not found:
            text += part
            continue
        if text.strip():
            cells.append(markdown(text))
        cells.append(code(found[2] if found[1] == "python" else "%%bash\n" + found[2]))
        text = ""
    if text.strip():
        cells.append(markdown(text))
    # The title comes first, then what installs.
    cells[:2] = cells[1::-1]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def main() -> None:
    """Write them."""
    for name, extra in INSTALLED.items():
        guide = (DOCS / "guides" / f"{name}.md").read_text(encoding="utf-8")
        path = DOCS / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(notebook(guide, extra), encoding="utf-8")


if __name__ == "__main__":
    main()
