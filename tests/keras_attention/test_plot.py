import numpy as np
import pytest

from keras_attention import AdditiveAttention, plot_attention

SOURCE, TARGET = ["a", "green", r"$\foo$"], ["une", "$x_"]
WEIGHTS = np.array([[0.9, 0.1, 0.0], [0.05, 0.15, 0.8]])


def labels(axes):
    """Of both axes, x first."""
    return [
        [label.get_text() for label in axis.get_ticklabels()] for axis in (axes.xaxis, axes.yaxis)
    ]


def test_the_map_shows_weights_and_tokens_as_they_are(tmp_path):
    path = tmp_path / "map.png"
    (axes,) = plot_attention(SOURCE, TARGET, WEIGHTS, path=str(path), title="$$").axes
    np.testing.assert_allclose(axes.images[0].get_array(), WEIGHTS)
    assert labels(axes) == [SOURCE, TARGET]
    assert axes.get_title() == "$$"
    assert {text.get_text() for text in axes.texts} == {".90", ".10", ".15", ".80"}
    assert path.read_bytes().startswith(b"\x89PNG")


IMAGE, ONES = np.zeros((8, 9)), np.ones((2, 4, 3))


@pytest.mark.parametrize(
    ("source", "weights", "options", "told"),
    [
        (SOURCE, np.pad(WEIGHTS, ((0, 1), (0, 0)), constant_values=1), {}, "expected zeros past"),
        (SOURCE, np.pad(WEIGHTS, ((0, 0), (0, 1)), constant_values=1), {}, "expected zeros past"),
        (SOURCE, WEIGHTS.T, {}, r"expected .*\(2, 3\)"),
        (SOURCE, WEIGHTS[None], {}, r"expected .*\(2, 3\)"),
        (IMAGE, WEIGHTS, {}, r"weights \(2, rows, columns\) for an image"),
        (IMAGE, ONES, {"ax": object()}, "expected no ax for an image"),
        (np.array([0.0, 2.0, 1.0]), WEIGHTS, {}, "times that rise"),
    ],
)
def test_what_does_not_fit_is_told(source, weights, options, told):
    with pytest.raises(ValueError, match=told):
        plot_attention(source, TARGET, weights, **options)


def test_a_large_map_is_drawn_within_bounds():
    count = 500
    tokens, weights = [str(i) for i in range(count)], np.eye(count, dtype="float32")
    figure = plot_attention(tokens, tokens, weights)
    width, height = figure.get_size_inches() * 150
    assert width * height * 4 < 50e6  # bytes of the picture as it is drawn
    (axes,) = figure.axes
    np.testing.assert_array_equal(axes.images[0].get_array(), weights)
    assert not axes.texts
    assert labels(axes)[0] == tokens[::5]
    assert list(axes.get_xticks()) == list(range(0, count, 5))


def test_a_timeline_has_its_events_where_they_happened(tmp_path):
    times, weights = np.array([0.0, 1.0, 3.0, 10.0]), np.eye(2, 4)
    (axes,) = plot_attention(times, TARGET, weights, path=str(tmp_path / "m.png")).axes
    (mesh,) = axes.collections
    np.testing.assert_allclose(mesh.get_array().reshape(2, 4), weights)
    np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], [-0.5, 0.5, 2.0, 6.5, 13.5])
    assert labels(axes)[1] == TARGET
    top, bottom = (mesh.get_coordinates()[i, 0, 1] for i in (0, -1))
    assert axes.transData.transform((0, top))[1] > axes.transData.transform((0, bottom))[1]


@pytest.mark.parametrize("channels", [(), (1,), (3,), (5,)])
def test_an_image_has_a_panel_for_each_token(tmp_path, rng, channels):
    image, weights, path = (
        rng.normal(size=(40, 60, *channels)),
        rng.random((2, 3, 5)),
        tmp_path / "m.png",
    )
    figure = plot_attention(image, TARGET, weights, path=str(path), title="Lunch")
    panels = [panel for panel in figure.axes if panel.images]
    assert [panel.get_title() for panel in panels] == TARGET
    for panel, weight in zip(panels, weights, strict=True):
        shown, over = panel.images
        assert shown.get_array().shape[:2] == (40, 60)
        np.testing.assert_allclose(over.get_array(), weight, rtol=1e-6)
        assert shown.get_extent() == over.get_extent()
    assert path.read_bytes().startswith(b"\x89PNG")


def test_weights_may_be_those_of_a_layer():
    query, value = np.ones((1, 2, 5), "float32"), np.ones((1, 3, 5), "float32")
    layer = AdditiveAttention(7, dtype="mixed_bfloat16")
    _, weights = layer(query, value, return_attention_scores=True)
    figure = plot_attention(SOURCE, TARGET, weights[0])
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), 1 / 3, atol=1e-2)
