import runpy
from pathlib import Path

from keras_attention import AdditiveAttention, MultiplicativeAttention, mechanisms

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_mechanisms_holds_all_of_them():
    page = runpy.run_path(str(DOCS / "_site" / "mechanisms.py"))["page"]()
    assert (DOCS / "mechanisms.md").read_text() == page, "python docs/_site/mechanisms.py writes it"


def test_a_name_makes_the_layer_with_its_own_options():
    layer = mechanisms.make("normalized_additive", 6, num_heads=3, name="mine")
    assert isinstance(layer, AdditiveAttention)
    assert (layer.units, layer.num_heads, layer.normalize, layer.name) == (6, 3, True, "mine")
    layer = mechanisms.make("local_p", 6, num_heads=3, half_width=4)
    assert (layer.half_width, layer.predictive, layer.attention.num_heads) == (4, True, 3)
    assert isinstance(layer.attention, MultiplicativeAttention)
