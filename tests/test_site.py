"""The site: every public name has its place, formulas are typeset, figures are small and whole."""

import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

import keras_attention
from keras_attention.mechanisms import BY_NAME

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = tomllib.loads((DOCS / "_site" / "reference.toml").read_text(encoding="utf-8"))


def test_every_public_name_is_in_one_group():
    grouped = [name for group in REFERENCE["groups"] for name in group["names"]]
    assert sorted(grouped) == sorted(keras_attention.__all__)


def test_formulas_and_pictures_are_of_public_names_and_every_mechanism_has_a_formula():
    formulas = REFERENCE["formulas"]
    assert set(formulas) <= set(keras_attention.__all__)
    mechanisms = {n for n in REFERENCE["groups"][0]["names"] if n.endswith("Attention")}
    assert mechanisms <= set(formulas)
    drawn = {path.stem for path in (DOCS / "pictures" / "mechanisms").glob("*.svg")}
    assert drawn <= set(BY_NAME)  # a picture takes an hour of trainings, and may come later
    assert {one["picture"] for one in formulas.values() if "picture" in one} <= drawn


@pytest.mark.parametrize("name", REFERENCE["formulas"])
def test_a_formula_is_typeset(name, monkeypatch):
    pytest.importorskip("latex2mathml")
    pytest.importorskip("markdown")
    monkeypatch.syspath_prepend(DOCS / "_site")
    from formulas import mathml

    tree = ElementTree.fromstring(mathml(REFERENCE["formulas"][name]["latex"], "block"))
    said = "".join(tree.itertext())
    assert "\\" not in said  # no command that was not understood
    assert "=" in said
