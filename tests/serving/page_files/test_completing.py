"""The browser's translator goes on with what was begun, in Node, as the SavedModel does."""

import base64
import json
import random

import numpy as np
import pytest
import tensorflow as tf

from serving.client.local.batches import Batches
from serving.client.local.completing import Completing
from serving.client.local.search import Search
from serving.client.local.spelling import Spelling as LocalSpelling
from serving.client.local.tokenizers import Vocabulary
from serving.export.texts import Exported
from serving.page.files.model import pack
from tests.serving.javascript import needs_node, run
from tests.serving.local.test_completing import Bigrams
from tests.serving.page_files.conftest import RUN, SETTINGS
from tests.training.decode.test_prefix import TOKENIZERS
from training.data.spelling import NONE, Spelling, begun_word
from training.decode.words import words_of
from training.runs.run import load_run

pytestmark = needs_node
TEXTS = ["He sleeps.", "She is eating a green apple.", "", "the " * 40]
ASK = """
import { readFileSync } from "node:fs";
import { readModel } from "engine/model.js";
import { Translator } from "engine/translator.js";
const { file, asked } = JSON.parse(readFileSync(0, "utf8"));
const translator = new Translator(readModel(Uint8Array.from(Buffer.from(file, "base64")).buffer));
const answer = ([method, ...words]) => {
  try {
    return translator[method](...words);
  } catch (error) {
    return { error: error.message };
  }
};
process.stdout.write(JSON.stringify(asked.map(answer)));
"""
SPELL = """
import { readFileSync } from "node:fs";
import { Spelling } from "engine/spelling.js";
const { kind, tokens, prefixes, said } = JSON.parse(readFileSync(0, "utf8"));
const spelling = new Spelling({ kind, size: tokens.length, token: (id) => tokens[id] });
const spelled = prefixes.map(([prefix, whole]) => {
  const normal = spelling.normalize(prefix);
  return [normal, spelling.begunWord(normal), spelling.ways(normal, whole)];
});
const words = said.map(([ids, logProbs]) => spelling.words(ids, logProbs));
process.stdout.write(JSON.stringify({ spelled, words }));
"""

# A translator whose decoder knows the last token alone, and how long its longest token is.
BIGRAMS = """
import { readFileSync } from "node:fs";
import { Translator } from "engine/translator.js";
import { tensor } from "engine/tensors.js";
const { tokens, table, settings, prefixes } = JSON.parse(readFileSync(0, "utf8"));
const side = { kind: "characters", tokens };
const rows = table.map((row) => row.map((x) => x ?? -Infinity));
const numbers = (ids) => Float32Array.from([...ids].flatMap((id) => rows[id]));
const step = ({ tokens }) => ({
  log_probs: tensor(numbers(tokens.data), [...tokens.dims, rows.length]),
  weights: tensor(new Float32Array(tokens.data.length), [...tokens.dims, 1]),
});
const translator = new Translator({
  source: side, target: side, settings: { ...settings, max_source_length: 9 },
  memory: [], state: [],
  encoder: { ask: () => ({}) }, step: { ask: step },
});
const found = prefixes.map((prefix) => translator.alternatives("ab", prefix));
const many = Array.from({ length: 200_000 }, (_, id) => `${id}`);
const large = new Translator({ source: side, target: { ...side, tokens: many } }).spelling.longest;
process.stdout.write(JSON.stringify({ found, large }));
"""


@pytest.fixture(scope="module")
def saved():
    """The signatures of the run's SavedModel, in graphs."""
    exported = Exported([load_run(RUN)], **SETTINGS)
    return {
        name: tf.function(getattr(exported, name), autograph=False, reduce_retracing=True)
        for name in ("translate", "complete", "alternatives")
    }


@pytest.fixture(scope="module")
def ask(versions):
    version = versions["float32"]
    manifest = json.loads((version / "manifest.json").read_text())
    file = base64.b64encode(pack(version, manifest, {})).decode()
    return lambda asked: run(ASK, given={"file": file, "asked": asked})


def decoded(texts):
    return [text.decode() for text in np.asarray(texts).ravel().tolist()]


def said_words(found, row):
    return [text for text in decoded(found["words"][row]) if text]


def test_translations_have_words_and_their_probabilities(ask, saved):
    wanted = saved["translate"](tf.constant(TEXTS))
    for row, one in enumerate(ask([["search", text] for text in TEXTS])):
        words = said_words(wanted, row)
        assert one["words"] == words
        probabilities = wanted["word_probabilities"][row][: len(words)]
        np.testing.assert_allclose(one["word_probabilities"], probabilities, atol=1e-4)


def prefixes(saved, part):
    """Beginnings of other translations, some with more spaces than tokens spell."""
    texts = decoded(saved["translate"](tf.constant(TEXTS[::-1]))["translation"])
    found = [text[: int(part * len(text))] for text in texts]
    return [*found[:-1], "  " + found[-1].replace(" ", "   ")]


@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_prefixes_are_completed_as_by_the_saved_model(ask, saved, part):
    begun = prefixes(saved, part)
    wanted = saved["complete"](tf.constant(TEXTS), tf.constant(begun))
    found = ask([["complete", *pair] for pair in zip(TEXTS, begun, strict=True)])
    assert [one["text"] for one in found] == decoded(wanted["translation"])
    assert [one["truncated"] for one in found] == wanted["truncated"].numpy().tolist()
    np.testing.assert_allclose([one["score"] for one in found], wanted["score"], atol=1e-4)
    assert [one["words"] for one in found] == [said_words(wanted, row) for row in range(len(TEXTS))]


@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_other_words_are_those_of_the_saved_model(ask, saved, part):
    begun = prefixes(saved, part)
    wanted = saved["alternatives"](tf.constant(TEXTS), tf.constant(begun))
    found = ask([["alternatives", *pair] for pair in zip(TEXTS, begun, strict=True)])
    for row, one in enumerate(found):
        words = said_words(wanted, row)
        assert [each["word"] for each in one] == words
        translations = decoded(wanted["translations"][row])[: len(words)]
        assert [each["translation"] for each in one] == translations
        for name, many in (("probability", "probabilities"), ("score", "scores")):
            numbers = [each[name] for each in one]
            np.testing.assert_allclose(numbers, wanted[many][row][: len(words)], atol=1e-4)
    assert any(found)


def test_a_prefix_that_no_tokens_spell_is_one_line(ask):
    said = "prefix[0] has characters that the model has no tokens for: ☃"
    for method in ("complete", "alternatives"):
        assert ask([[method, text, "☃"] for text in TEXTS]) == [{"error": said}] * len(TEXTS)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_prefixes_are_spelled_and_words_told_as_in_tensorflow(kind):
    tokenizer, rng = TOKENIZERS[kind](), random.Random(5)
    spelling, size = Spelling(tokenizer), tokenizer.vocab_size
    tokens = decoded(tokenizer.tokens(tf.range(size)))
    begun = ["".join(rng.choices("aabb  éc\v\t", k=rng.randrange(8))) for _ in range(400)]
    whole = [rng.random() < 0.4 for _ in begun]
    ids = [[rng.randrange(4, size) for _ in range(7)] for _ in range(50)]
    log_probs = [[-rng.random() for _ in row] for row in ids]
    given = {"kind": kind, "tokens": tokens, "prefixes": list(zip(begun, whole, strict=True))}
    found = run(SPELL, given={**given, "said": list(zip(ids, log_probs, strict=True))})

    normal = spelling.normalize(tf.constant(begun))
    spelled, possible = spelling.spell(normal, tf.constant(whole))
    low, high = spelled.low.numpy(), spelled.high.numpy()
    ranks = spelling.ranks.numpy()
    starts = begun_word(normal).numpy()
    for row, (text, start, ways) in enumerate(found["spelled"]):
        assert text == normal.numpy()[row].decode()
        assert len(text[:start].encode()) == starts[row]
        assert (ways is not None) == possible.numpy()[row]
        for place, each in enumerate(ways or []):
            at = len(text[:place].encode())
            exact = {*spelled.tokens.numpy()[row, at].tolist()} - {NONE}
            assert {*each["exact"]} == exact
            ends = zip(low[row, at], high[row, at], strict=True)
            beyond = {int(x) for a, b in ends for x in np.flatnonzero((ranks >= a) & (ranks < b))}
            assert {*each["beyond"]} == beyond
    words, probabilities = words_of(
        tokenizer, tokenizer.tokens(tf.constant(ids)), tf.constant(log_probs)
    )
    for row, one in enumerate(found["words"]):
        assert "".join(one["words"]) == "".join(decoded(words[row]))
        wanted = probabilities[row][: len(one["words"])]
        np.testing.assert_allclose(one["word_probabilities"], wanted, rtol=1e-5)


def test_spaces_that_do_not_break_are_words_as_in_python(rng):
    tokens = ["a", "b", " ", "\u00a0", "\u3000", "\ufeff", "\t"]
    logits = rng.normal(size=(4 + len(tokens),) * 2)
    logits[:, :3] = -np.inf  # special tokens are not said
    table = (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype("float32")
    folder, target = Bigrams(table), Vocabulary({"kind": "characters", "tokens": tokens})
    search = Search(folder.manifest, None, None, None)
    spelling = LocalSpelling(target, "ab")
    local = Completing(folder, target, spelling, search, Batches(4, 1))
    prefixes = ["", "a", "ab", "a ", "a\u00a0", "\u3000", "b\t"]
    wanted = local.alternatives([[4, 5]] * len(prefixes), prefixes, [None] * len(prefixes))
    rows = [[None if np.isinf(x) else float(x) for x in row] for row in table]
    given = {"tokens": tokens, "table": rows, "settings": folder.manifest["settings"]}
    answer = run(BIGRAMS, given={**given, "prefixes": prefixes})
    assert {"\u00a0", "\u3000"} <= {one.word for row in wanted for one in row}
    for found, row in zip(answer["found"], wanted, strict=True):
        assert [one["word"] for one in found] == [one.word for one in row]
        assert [one["translation"] for one in found] == [one.translation for one in row]
        sure = [one["probability"] for one in found]
        np.testing.assert_allclose(sure, [one.probability for one in row], rtol=1e-4)
    assert answer["large"] == len("199999")
