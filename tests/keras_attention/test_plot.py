import numpy as np
import pytest

from keras_attention import plot_attention

SOURCE, TARGET = ["a", "green", "apple"], ["une", "pomme"]
WEIGHTS = np.array([[0.9, 0.1, 0.0], [0.05, 0.15, 0.8]])


def test_the_map_shows_weights_and_tokens(tmp_path):
    path = tmp_path / "map.png"
    figure = plot_attention(SOURCE, TARGET, WEIGHTS, path=str(path), title="She eats")
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.images[0].get_array(), WEIGHTS)
    assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in axes.get_yticklabels()] == TARGET
    assert axes.get_title() == "She eats"
    assert {text.get_text() for text in axes.texts} == {".90", ".10", ".15", ".80"}
    assert path.read_bytes().startswith(b"\x89PNG")


def test_padding_past_the_tokens_is_left_out():
    padded = np.pad(WEIGHTS, ((0, 2), (0, 3)), constant_values=0.5)
    figure = plot_attention(SOURCE, TARGET, padded)
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), WEIGHTS)


def test_the_map_goes_on_given_axes():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    assert plot_attention(SOURCE, TARGET, WEIGHTS, ax=axes) is axes.figure
    assert len(axes.images) == 1


@pytest.mark.parametrize("weights", [WEIGHTS.T, WEIGHTS[0], WEIGHTS[None]])
def test_weights_of_another_shape_are_told(weights):
    with pytest.raises(ValueError, match=r"plot_attention expected .*\(2, 3\).*Received: "):
        plot_attention(SOURCE, TARGET, weights)


def test_characters_without_a_font_are_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_attention.plot.CJK_FONTS", ())
    with pytest.warns(UserWarning, match="no installed font") as caught:
        plot_attention(["a", "b"], ["苹", "果", "苹"], np.eye(3, 2), path=str(tmp_path / "m.png"))
    assert [str(w.message) for w in caught] == [
        "no installed font has 苹果: install one that does, such as Noto Sans CJK"
    ]


def test_an_installed_font_with_the_characters_is_used(monkeypatch):
    monkeypatch.setattr("keras_attention.plot.CJK_FONTS", ("No Such Font", "DejaVu Serif"))
    axes = plot_attention(SOURCE, TARGET, WEIGHTS).axes[0]
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        assert label.get_fontfamily()[-1] == "DejaVu Serif"
