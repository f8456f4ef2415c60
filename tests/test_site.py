"""The site: every public name has its place, formulas are typeset, what is made is up to date."""

import importlib
import inspect
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

import keras_attention
from keras_attention.mechanisms import BY_NAME

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = tomllib.loads((DOCS / "_site" / "reference.toml").read_text(encoding="utf-8"))


@pytest.fixture
def made_by(monkeypatch):
    """A program of the site, by its name."""
    monkeypatch.syspath_prepend(DOCS / "_site")
    return importlib.import_module


def test_every_public_name_is_in_one_group_mechanisms_by_themselves(made_by, monkeypatch):
    arguments = made_by("arguments")
    grouped = [name for group in arguments.groups() for name in group["names"]]
    assert sorted(grouped) == sorted(keras_attention.__all__)
    groups = [{**group, "names": list(group["names"])} for group in REFERENCE["groups"]]
    groups[0]["names"].remove("CoverageAttention")
    monkeypatch.setitem(arguments.REFERENCE, "groups", groups)
    arguments.groups.cache_clear()
    assert arguments.groups()[0]["names"][-1] == "CoverageAttention"
    arguments.groups.cache_clear()


def test_formulas_and_pictures_are_of_public_names_and_every_mechanism_has_a_formula():
    formulas = REFERENCE["formulas"]
    assert set(formulas) <= set(keras_attention.__all__)
    mechanisms = {n for n in REFERENCE["groups"][0]["names"] if n.endswith("Attention")}
    assert mechanisms <= set(formulas)
    drawn = {path.stem for path in (DOCS / "pictures" / "mechanisms").glob("*.svg")}
    assert drawn <= set(BY_NAME)  # a picture takes an hour of trainings, and may come later
    assert {one["picture"] for one in formulas.values() if "picture" in one} <= drawn


@pytest.mark.parametrize("name", REFERENCE["formulas"])
def test_a_formula_is_typeset(name, made_by):
    pytest.importorskip("latex2mathml")
    pytest.importorskip("markdown")
    latex = REFERENCE["formulas"][name]["latex"]
    tree = ElementTree.fromstring(made_by("formulas").mathml(latex, "block"))
    said = "".join(tree.itertext())
    assert "\\" not in said  # no command that was not understood
    assert "=" in said


def test_what_programs_write_is_up_to_date(made_by):
    """Notebooks' code runs as the guides' tests run it."""
    written = (DOCS / "mechanisms.md").read_text(encoding="utf-8")
    command = "python docs/_site/mechanisms.py > docs/mechanisms.md"
    assert written == made_by("mechanisms").page(), command
    notebooks = made_by("notebooks")
    for name, extra in notebooks.INSTALLED.items():
        guide = (DOCS / "guides" / f"{name}.md").read_text(encoding="utf-8")
        written = (DOCS / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
        assert written == notebooks.notebook(guide, extra), "run python docs/_site/notebooks.py"


def test_every_argument_of_a_layer_is_in_its_docstring(made_by):
    sections = made_by("arguments").sections
    for name in keras_attention.__all__:
        made = getattr(keras_attention, name)
        # The arguments of HoistedRNN are those of `keras.layers.RNN`.
        if isinstance(made, type) and name != "HoistedRNN":
            told = " ".join(sections(name).values())
            missing = [each for each in inspect.signature(made).parameters if each not in told]
            assert not missing, name


def test_pictures_of_guides_are_drawn_by_code_light_and_dark(made_by):
    guides = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("guides/*.md"))
    for name, draw in made_by("drawings").DRAWN.items():
        picture = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        assert picture == draw(), "python docs/_site/drawings.py"
        assert "prefers-color-scheme:dark" in picture
        assert f"](../pictures/{name}.svg)" in guides
