"""Long words of a pronouncer, in every execution against a loop over their windows."""

import base64
import json
import random

import numpy as np
import pytest
import tensorflow as tf

from serving.export.modules import Exported
from serving.export.version import export
from serving.portable.engine.pack import pack
from serving.portable.read import LocalTranslator
from serving.portable.read.lexicon import Pronouncer
from tests.serving.javascript import needs_node, run
from tests.serving.portable.engine.test_translator import TRANSLATE
from tests.training.conftest import untrained
from training.config.schema import load_preset, override
from training.data.store import END_ID, PAD_ID, START_ID, UNK_ID
from training.decode.search import bound_of, search
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest
from training.decode.windows import spelling_of
from training.runs.run import load_run

LETTERS = "abcdefghij"
SIZES = [f"{name}_units=7" for name in ("encoder", "decoder", "attention", "readout")]
WIDTH, RESULTS, WHOLE = 3, 2, 13


def pronouncer(folder, attention):
    """A run whose weights are so large that its phones differ, and end soon."""
    rng = random.Random(5)
    words = {"".join(rng.choices(LETTERS, k=rng.choice((3, 4, 7, WHOLE)))) for _ in range(300)}
    file = folder / "words.tsv"
    file.write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in sorted(words)))
    settings = [
        *SIZES,
        "embedding_size=5",
        "epochs=1",
        f"data=tsv:{file}",
        "dev=0.1",
        f"attention={attention}",
    ]
    model = untrained(override(load_preset("g2p-low"), settings), folder / "run")
    numbers = np.random.default_rng(3)
    for weight in model.model.weights:
        if "float" in weight.dtype:
            weight.assign(numbers.normal(0, 0.9, weight.shape))
    aligns = attention == "hard_monotonic"
    output = (
        model.model.get_layer("decoder").output_layer if aligns else model.model.get_layer("output")
    )
    bias = np.zeros(model.target_tokenizer.vocab_size, "float32")
    bias[[PAD_ID, UNK_ID, START_ID, END_ID]] = -9, -9, -9, 1
    output.bias.assign(bias)
    return model


@pytest.fixture(scope="module", params=["hard_monotonic", "additive"])
def case(request, tmp_path_factory):
    """A run, words of 1 to 60 letters, and each with its results by a loop."""
    model = pronouncer(tmp_path_factory.mktemp(request.param), request.param)
    rng = random.Random(7)
    words = ["".join(rng.choices(LETTERS, k=size)) for size in (1, 5, 12, *range(13, 30), 47, 60)]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def ask(ids):
        return search(
            [model.model],
            ids,
            SearchSettings(WIDTH, RESULTS),
            bound=bound_of([model]),
            return_attention_weights=True,
        )

    return model, words, [by_loop(model, ask, word) for word in words]


def windows_of(word):
    """Yield of each window its text, its first letter, and the letters whose phones are kept."""
    if len(word) <= WHOLE:
        yield word, 0, range(len(word))
        return
    at = 0
    while at < len(word):
        to = at + (9 if at == 0 else 6)
        if len(word) - to <= 3:
            to = len(word)
        first = max(0, at - 3)
        yield word[first : to + 3], first, range(at, to)
        at = to


def by_loop(model, ask, word):
    """The results of a word: phones, score, and the letter that each looks at most."""
    results = [([], [], []) for _ in range(RESULTS)]
    for text, first, core in windows_of(word):
        ids = model.source_tokenizer.tokenize(tf.constant([text])).to_tensor()
        found = ask(ids)
        for rank, (phones, gains, places) in enumerate(results):
            for step, number in enumerate(found.ids[0, rank].numpy()):
                place = first + int(np.argmax(found.attention_weights[0, rank, step]))
                ends = number == END_ID and core.stop == len(word)
                if ends or (number not in (END_ID, PAD_ID) and place in core):
                    gains.append(float(found.log_probs[0, rank, step]))
                if number not in (END_ID, PAD_ID) and place in core:
                    phones.append(int(number))
                    places.append(place)
    tokens = model.target_tokenizer.tokens
    return [
        (
            " ".join(token.decode() for token in tokens(tf.constant(phones, tf.int32)).numpy()),
            sum(gains) / ((5 + len(gains)) / 6),
            places,
        )
        for phones, gains, places in results
    ]


def check(wanted, texts, scores):
    for word, each, *found in zip(wanted, wanted, texts, scores, strict=True):
        assert found[0] == [text for text, *_ in each], word
        np.testing.assert_allclose(found[1], [score for _, score, _ in each], atol=1e-4)


def test_a_run_remembers_the_lengths_that_it_learned_from(case):
    model, *_ = case
    letters, phones = (
        np.load(model.files.tokens / f"train.{side}.lengths.npy") for side in ("source", "target")
    )
    spelling = spelling_of([load_run(model.path)])
    assert spelling.whole == WHOLE == np.sort(letters)[int(0.99 * (len(letters) - 1))]
    assert spelling.fewest == pytest.approx(np.quantile(phones / letters, 0.002)) == 1.0
    (model.files.origin).rename(model.path / "aside")  # as of a run of an earlier version
    assert spelling_of([model]) is None
    (model.path / "aside").rename(model.files.origin)


def test_keras_reads_long_words_by_windows(case):
    model, words, wanted = case
    found = make_nbest([model], SearchSettings(WIDTH, RESULTS), 7)(words)
    check(wanted, *([[getattr(x, n) for x in each] for each in found] for n in ("text", "score")))


@pytest.mark.slow
def test_xla_reads_long_words_by_windows(case, monkeypatch):
    model, words, wanted = case
    if model.config.attention != "additive":
        return
    monkeypatch.setattr(type(model.config), "compiles", lambda config: True)
    found = make_nbest([model], SearchSettings(WIDTH, RESULTS), 16)(words)
    check(wanted, *([[getattr(x, n) for x in each] for each in found] for n in ("text", "score")))


def test_a_saved_model_reads_long_words_by_windows(case):
    model, words, wanted = case
    module = Exported([model], SearchSettings(WIDTH, RESULTS))
    signatures = module.signatures()
    found = signatures["nbest"](text=tf.constant(words))
    texts = [[text.decode() for text in row] for row in found["translations"].numpy()]
    check(wanted, texts, found["scores"].numpy())
    best = signatures["align"](text=tf.constant(words))
    looked = best["attention_weights"].numpy()
    assert [text.decode() for text in best["translation"].numpy()] == [e[0][0] for e in wanted]
    for row, ((_, _, places), _) in zip(looked, wanted, strict=True):
        assert row[: len(places)].argmax(-1).tolist() == places
        assert not row[len(places) :].any()


def test_an_onnx_export_reads_long_words_by_windows(case, tmp_path):
    model, words, wanted = case
    folder = export([model], tmp_path / "m", form="onnx", beam_width=WIDTH, num_results=RESULTS)
    local = LocalTranslator(folder, batch_size=5)
    found = local.nbest(words)
    check(wanted, *([[getattr(x, n) for x in each] for each in found] for n in ("text", "score")))
    for aligned, ((text, _, places), _) in zip(local.align(words), wanted, strict=True):
        assert aligned.translation == text
        assert [int(np.argmax(row)) for row in aligned.attention_weights] == places
    for word, (best,) in Pronouncer(folder).pronounce(words):
        phones = wanted[words.index(word)][0][0]
        assert " ".join(best.phones) == phones or not phones  # of silence the next is taken


@needs_node
def test_a_browser_reads_long_words_by_windows(case, tmp_path):
    model, words, wanted = case
    folder = export([model], tmp_path / "m", form="onnx", beam_width=WIDTH, num_results=RESULTS)
    file = pack(folder, json.loads((folder / "manifest.json").read_text()), {})
    asked = {"file": base64.b64encode(file).decode(), "texts": words, "asked": {}}
    found = [each["hypotheses"] for each in run(TRANSLATE, given=asked)]
    check(wanted, *([[x[name] for x in each] for each in found] for name in ("text", "score")))
    for (best, _), ((_, _, places), _) in zip(found, wanted, strict=True):
        assert [int(np.argmax(row)) for row in best["weights"]] == places
