"""The notebooks have the guides' code, in order, and nothing that a run left in them.

The code itself runs as the guides' tests run it.
"""

import importlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_the_notebooks_are_those_that_the_guides_make(monkeypatch):
    assert [path.stem for path in NOTEBOOKS] == ["from-addons", "own-data", "own-model"]
    monkeypatch.syspath_prepend(ROOT / "docs" / "_site")
    made = importlib.import_module("notebooks")
    for path in NOTEBOOKS:
        guide = (ROOT / "docs" / "guides" / f"{path.stem}.md").read_text(encoding="utf-8")
        found = made.notebook(guide, made.INSTALLED[path.stem])
        assert found == path.read_text(encoding="utf-8"), "run python docs/_site/notebooks.py"
