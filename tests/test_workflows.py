"""Targets that workflows and CI call exist; a version of another's tool stands in one place."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE, SETUP = ((ROOT / name).read_text() for name in ("Makefile", "setup.py"))


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci/run"], ids=lambda path: path.name)
def test_targets_are_those_of_the_makefile(path):
    targets = set(re.findall(r"^([\w/.-]+):", MAKEFILE, re.MULTILINE))
    called = re.findall(r"\bmake (?:-j 2 )?((?:[a-z.][\w/.-]*(?: |$))+)", path.read_text(), re.M)
    names = {name for group in called for name in group.split()}
    assert "lint" in names
    assert names <= targets


def test_the_version_cited_is_the_version_built():
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    assert f'version="{cited}"' in SETUP


def test_pythons_are_those_that_setup_names():
    pythons = re.findall(r"Language :: Python :: ([\d.]+)", SETUP)
    tried = [re.findall(r'python(?:-version)?: "([\d.]+)"', p.read_text()) for p in WORKFLOWS]
    assert {version for found in tried for version in found} == set(pythons)
    assert re.findall(r"python(3\.\d+)", MAKEFILE.partition(";")[0]) == pythons
    for path in (ROOT / "setup.py", ROOT / "packaging/client/setup.py"):
        assert f'python_requires=">={pythons[0]}"' in path.read_text()
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["mypy"]["python_version"] == pythons[0]
    assert tools["ruff"]["target-version"] == f"py{pythons[0].replace('.', '')}"


@pytest.mark.parametrize(
    "tool", ["ruff", "mypy", "pytest-xdist", "pytest-cov", "keras-nightly", "torch="]
)
def test_a_tools_version_stands_in_one_place(tool):
    """What serves an export, TensorFlow Serving's image, tests/serving/test_deploy.py looks up."""
    named = rf"""["' ]{tool}[=<>\d.,]+["'\n]|--no-deps {tool}$"""
    places = [ROOT / ".ci/run", ROOT / ".pre-commit-config.yaml", *WORKFLOWS]
    texts = [MAKEFILE, SETUP, *(path.read_text() for path in places)]
    assert sum(len(re.findall(named, text, re.MULTILINE)) for text in texts) == 1
