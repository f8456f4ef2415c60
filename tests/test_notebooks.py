"""The notebooks have the guides' code, in order, and nothing that a run left in them.

The code itself runs as the guides' tests run it.
"""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def read(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(cell, "".join(cell["source"])) for cell in cells]


def test_three_guides_have_one():
    assert [path.stem for path in NOTEBOOKS] == ["from-addons", "own-data", "own-model"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_links_of_a_notebook_lead_somewhere(path):
    text = "\n".join(text for cell, text in read(path) if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert links
    for link in links:
        assert (path.parent / link).exists(), link


def test_the_notebooks_are_those_that_the_guides_make(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_site")
    made = importlib.import_module("notebooks")
    for path in NOTEBOOKS:
        guide = (ROOT / "docs" / "guides" / f"{path.stem}.md").read_text(encoding="utf-8")
        found = made.notebook(guide, made.INSTALLED[path.stem])
        assert found == path.read_text(encoding="utf-8"), "run python docs/_site/notebooks.py"
