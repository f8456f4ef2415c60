import itertools

import numpy as np

from lab import ctc
from training.config.schema import Config


def collapsed(path):
    return [token for token, _ in itertools.groupby(path) if token != ctc.BLANK]


def test_the_best_path_is_read_without_repetitions_and_blanks():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5, 11, 3)).astype("float32")
    read = ctc.said(logits)
    for row, path in zip(read, logits.argmax(-1), strict=True):
        text = collapsed(path)
        assert row.tolist() == text + [ctc.BLANK] * (read.shape[1] - len(text))
    nothing = np.eye(3, dtype="float32")[np.zeros((2, 4), int)]
    assert not ctc.said(nothing).any()


def test_the_loss_is_minus_the_log_of_all_paths_that_say_the_text():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 5, 4)).astype("float32")
    labels = np.array([[1, 2, 0], [3, 3, 1]], "int32")
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    wanted = []
    for row, text in zip(probabilities, ([1, 2], [3, 3, 1]), strict=True):
        total = sum(
            np.prod([row[step, token] for step, token in enumerate(path)])
            for path in itertools.product(range(4), repeat=5)
            if collapsed(path) == text
        )
        wanted.append(-np.log(total))
    np.testing.assert_allclose(ctc.ctc_loss(labels, logits), np.mean(wanted), rtol=1e-4)


def test_a_column_of_the_grid_says_a_token():
    sizes = {"image_height": 8, "image_width": 12, "convolutions": "3:2x2 5:2x1"}
    model = ctc.build_ctc(Config(source="image", decoder_units=7, **sizes), 11)
    assert model(np.zeros((2, 8, 12, 1), "uint8")).shape == (2, 6, 11)
