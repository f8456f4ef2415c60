"""The browser's translator, in Node, against `LocalTranslator`."""

import base64
import json
import random

import numpy as np
import pytest

from serving.api.results import split_sentences
from serving.portable.engine.pack import pack
from serving.portable.read import LocalTranslator
from tests.serving.javascript import needs_node, run
from training.data import corpus

pytestmark = needs_node
ODD = ["", "\u200b", "zzz ★ \ud800", "a\x00b", "the " * 40, " " * 20_000 + "she"]
TRANSLATE = """
import { readFileSync } from "node:fs";
import { readModel } from "engine/model.js";
import { Translator } from "engine/translator.js";
const { file, texts, asked } = JSON.parse(readFileSync(0, "utf8"));
const translator = new Translator(readModel(Uint8Array.from(Buffer.from(file, "base64")).buffer));
process.stdout.write(JSON.stringify(texts.map((text) => translator.search(text, asked))));
"""


def in_node(version, texts, **asked):
    file = pack(version, json.loads((version / "manifest.json").read_text()), {})
    given = {"file": base64.b64encode(file).decode(), "texts": texts, "asked": asked}
    return run(TRANSLATE, given=given)


@pytest.fixture(scope="module")
def texts():
    return [*ODD, *corpus.load("phrasebook-en-fr", "dev").sources]


@pytest.mark.parametrize(("weights", "width"), [("float32", 5), ("int8", 1)])
def test_texts_are_those_of_the_local_translator(versions, texts, weights, width):
    found = in_node(versions[weights], texts, beam_width=width, num_results=1)
    local = LocalTranslator(versions[weights], beam_width=width, num_results=1)
    wanted = local.translate(texts)
    assert [one["truncated"] for one in found] == [one.truncated for one in wanted]
    assert [one["unknown"] for one in found] == [one.unknown for one in wanted]
    firsts = [one["hypotheses"][0] for one in found]
    same = [a["text"] == b.text for a, b in zip(firsts, wanted, strict=True)]
    assert np.mean(same) >= (1.0 if weights == "float32" else 0.99)
    if weights == "float32":
        scores = [one["score"] for one in firsts]
        np.testing.assert_allclose(scores, [one.score for one in wanted], atol=1e-4)


def test_weights_and_other_texts_are_those_of_the_local_translator(versions, texts):
    texts = texts[:30]
    found = in_node(versions["float32"], texts)
    local = LocalTranslator(versions["float32"])
    for one, aligned, others in zip(found, local.align(texts), local.nbest(texts), strict=True):
        best = one["hypotheses"][0]
        assert tuple(one["tokens"]) == aligned.source_tokens
        assert tuple(best["tokens"]) == aligned.target_tokens
        for row, wanted in zip(best["weights"], aligned.attention_weights, strict=True):
            np.testing.assert_allclose(row, wanted, atol=1e-4)
        assert [each["text"] for each in one["hypotheses"]] == [each.text for each in others]


def test_texts_are_cut_into_sentences_as_by_the_client():
    rng = random.Random(11)
    signs = "ab. !?…\"'”’»)]。！？」 \n\t\u3000\x1c\ufeff"
    texts = ["".join(rng.choices(signs, k=rng.randrange(14))) for _ in range(3000)]
    cut = """
    import { readFileSync } from "node:fs";
    import { splitSentences } from "engine/sentences.js";
    process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(splitSentences)));
    """
    sentences = run(cut, given=texts)
    assert sentences == [[list(pair) for pair in split_sentences(text)] for text in texts]
