"""What the workflows and CI call exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CALLERS = [*sorted((ROOT / ".github/workflows").glob("*.yml")), ROOT / ".ci/run"]


@pytest.mark.parametrize("path", CALLERS, ids=lambda path: path.name)
def test_targets_are_those_of_the_makefile(path):
    targets = set(re.findall(r"^([\w/.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = re.findall(r"\bmake (?:-j 2 )?((?:[a-z.][\w/.-]*(?: |$))+)", path.read_text(), re.M)
    names = {name for group in called for name in group.split()}
    assert {"lint", "test"} <= names
    assert names <= targets


def test_the_version_cited_is_the_version_built():
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    assert f'version="{cited}"' in (ROOT / "setup.py").read_text()
