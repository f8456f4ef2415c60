"""Pictures of what clients are answered."""

import pytest
from PIL import Image

from serving.client.drawing import draw_timeline
from serving.client.results import Prediction


@pytest.mark.parametrize("title", ["$\\nothing{$", "costs $5_{ or $6", "$a^$"])
def test_a_dollar_in_a_title_is_a_dollar(title, tmp_path):
    prediction = Prediction(0.25, (0.5, 0.5))
    draw_timeline([0.0, 1.0], prediction, tmp_path / "found.png", title)
    draw_timeline([0.0, 1.0], prediction, tmp_path / "same.png", title)
    draw_timeline([0.0, 1.0], prediction, tmp_path / "none.png", title.replace("$", ""))
    found, same, none = (
        Image.open(tmp_path / f"{name}.png").tobytes() for name in ("found", "same", "none")
    )
    assert found == same
    assert found != none
