"""The search in NumPy beside the library's, over the same model."""

import numpy as np
import pytest

from serving.client.local.beam import beam_search
from tests.serving.onnx_models import Graphs, expected, random_ids, random_model


class Folder:
    """Graphs as a folder."""

    def __init__(self, graphs):
        self.manifest = {"graphs": graphs.about}
        self.run = lambda graph, inputs: graphs.run(graph, **inputs)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    config, model = random_model("input_feeding=true")
    return Folder(Graphs(config, model, tmp_path_factory.mktemp("graphs"))), model


@pytest.mark.parametrize(
    ("width", "results", "penalty", "coverage_penalty"),
    [(1, 1, 1.0, 0.0), (1, 1, 0.7, 0.3), (3, 2, 0.0, 0.0), (5, 5, 0.7, 0.0), (3, 3, 0.7, 0.3)],
)
def test_it_finds_what_the_library_finds(case, width, results, penalty, coverage_penalty):
    folder, model = case
    ids = random_ids(5, 7)
    sources = [row[row > 0].tolist() for row in ids]
    found = beam_search(
        folder,
        sources,
        [2 * len(source) + 10 for source in sources],
        width=width,
        results=results,
        penalty=penalty,
        coverage_penalty=coverage_penalty,
        rule=lambda log_probs, tokens, carried: (log_probs, carried),
    )
    wanted = expected(model, ids, width, results, penalty, coverage_penalty=coverage_penalty)
    if width > 1 and coverage_penalty:
        assert not np.allclose(wanted[2], expected(model, ids, width, results, penalty)[2])
    for row, hypotheses in enumerate(found):
        for one, tokens, length, score, weights, log_probs in zip(
            hypotheses, *(x[row] for x in wanted), strict=True
        ):
            assert one.ids.tolist() == tokens[:length].tolist()
            np.testing.assert_allclose(one.score, score, atol=1e-4)
            np.testing.assert_allclose(one.weights, weights[:length], atol=1e-4)
            np.testing.assert_allclose(one.log_probs, log_probs[:length], atol=1e-4)
