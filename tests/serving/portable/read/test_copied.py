"""Words that are copied, or put in the places of unknown ones, beside the SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

from serving.check.onnx import check_folder
from serving.client import SignatureNotFoundError
from serving.export.modules import Exported
from serving.export.version import export
from serving.portable.read import LocalTranslator
from tests.training.conftest import untrained
from tests.training.test_copying import SETTINGS, names_task
from training.config.schema import Config
from training.data.store import PAD_ID, START_ID, UNK_ID
from training.decode.settings import SearchSettings
from training.runs.checkpoints import save_best
from training.runs.run import load_run

ASKED = {"beam_width": 3, "num_results": 2, "max_source_length": 8, "length_penalty": 0.7}


@pytest.fixture(scope="module", params=["copy", "replace"])
def case(request, tmp_path_factory):
    """A translator, and the answers of a SavedModel of the same run, whose weights are random."""
    folder, rng = tmp_path_factory.mktemp(request.param), np.random.default_rng(1)
    data = folder / "names.tsv"
    data.write_text("".join("\t".join(pair) + "\n" for pair in names_task(rng, 60)))
    copies = request.param == "copy"
    run = untrained(Config(data=f"tsv:{data}", **{**SETTINGS, "copy": copies}), folder / "run")
    for weight in run.model.weights:
        if "float" in weight.dtype:
            weight.assign(rng.normal(size=weight.shape))
    bias, ids = run.model.get_layer("output").bias, np.arange(run.target_tokenizer.vocab_size)
    bias.assign(
        bias + 3.0 * (not copies) * (ids == UNK_ID) - 30.0 * np.isin(ids, (PAD_ID, START_ID))
    )
    save_best(run.files, run.model)
    run = load_run(folder / "run")
    settings = {**ASKED, "replaces_unknown": not copies, "coverage_penalty": 0.3}
    version = export([run], folder / "names", form="onnx", **settings)
    module = Exported([run], SearchSettings(**{"num_results": 5, **settings}))
    texts = [source for source, _ in names_task(rng, 5)] + ["", "Zoé 給 Ωμ (Ωμ).", "a " * 20]

    def ask(name, **more):
        found = getattr(module, name)(tf.constant(texts), **more)
        return {name: x.numpy() for name, x in found.items()}

    return LocalTranslator(version), texts, ask, run


def decoded(texts):
    return [text.decode() for text in texts if text]


def assert_same_words(found, wanted):
    for row, one in enumerate(found):
        assert [*one.words] == decoded(wanted["words"][row])
        sure = wanted["word_probabilities"][row][: len(one.words)]
        # Random weights are large: differences grow along a translation.
        np.testing.assert_allclose(one.word_probabilities, sure, atol=5e-3)


def test_translations_are_those_of_the_saved_model(case):
    translator, texts, ask, _ = case
    wanted, found = ask("translate"), translator.translate(texts)
    assert [one.text for one in found] == [x.decode() for x in wanted["translation"]]
    assert any(word in one.text for one, text in zip(found, texts, strict=True) for word in text)
    np.testing.assert_allclose([one.score for one in found], wanted["score"], atol=1e-4)
    assert_same_words(found, wanted)
    aligned = ask("align")
    for row, one in enumerate(translator.align(texts)):
        assert [*one.source_tokens] == decoded(aligned["source_tokens"][row])
        assert [*one.target_tokens] == decoded(aligned["target_tokens"][row])


def test_the_check_finds_nothing_and_a_model_that_copies_scores_nothing(case):
    translator, texts, _, run = case
    assert check_folder(translator._folder.path, run.path) == []
    assert ("score" in translator.signatures()) == (not run.config.copy)
    if run.config.copy:
        with pytest.raises(SignatureNotFoundError, match="no score: what it copies"):
            translator.score(texts, texts)
