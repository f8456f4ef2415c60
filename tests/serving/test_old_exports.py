"""An export of version 0.1 is checked, loaded and served as it was.

`exports/en-fr-0.1.tar.xz` was made by commit fe9a10e: a small phrasebook translator,
`serving.export --beam-width 3 --num-results 2 --max-source-length 9`; the JSON file beside it has
what its signatures answered there.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from serving.check.version import check_version
from serving.client import Translator
from tests.serving.conftest import serving

EXPORTS = Path(__file__).with_name("exports")
ANSWERS = json.loads((EXPORTS / "en-fr-0.1.json").read_text(encoding="utf-8"))
TEXTS = ANSWERS["texts"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("old") / "en-fr"
    with tarfile.open(EXPORTS / "en-fr-0.1.tar.xz") as archive:
        archive.extractall(base, filter="data")
    return base


@pytest.fixture(scope="module")
def translator(base):
    with (
        serving("--model_name=en-fr", f"--model_base_path={base}") as server,
        Translator(f"localhost:{server.port}", "en-fr") as translator,
    ):
        yield translator


def test_it_is_ready_to_serve(base):
    assert check_version(base / "1") == []


def test_it_translates_as_it_did(translator):
    expected = ANSWERS["translate"]
    found = translator.translate(TEXTS)
    assert [one.text for one in found] == expected["translation"]
    assert [one.truncated for one in found] == expected["truncated"]
    np.testing.assert_allclose([one.score for one in found], expected["score"], atol=1e-4)


def test_its_other_signatures_answer_as_they_did(translator):
    found = translator.nbest(TEXTS)
    assert [[one.text for one in several] for several in found] == ANSWERS["nbest"]["translations"]
    scores = [[one.score for one in several] for several in found]
    np.testing.assert_allclose(scores, ANSWERS["nbest"]["scores"], atol=1e-4)
    expected = ANSWERS["align"]
    for row, one in enumerate(translator.align(TEXTS)):
        assert one.translation == expected["translation"][row]
        assert list(one.source_tokens) == [t for t in expected["source_tokens"][row] if t]
        assert list(one.target_tokens) == [t for t in expected["target_tokens"][row] if t]
        shape = len(one.target_tokens), len(one.source_tokens)
        weights = np.reshape(one.attention_weights, shape)
        wanted = np.array(expected["attention_weights"][row])[: shape[0], : shape[1]]
        np.testing.assert_allclose(weights, wanted, atol=1e-4)
