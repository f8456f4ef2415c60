"""The signatures `complete` and `alternatives` of a SavedModel, beside `translate` and `score`."""

import asyncio
import json
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_pb2

from serving.client import AsyncTranslator, InvalidRequestError, Translator
from serving.client import __main__ as client
from serving.export.completing import MOST
from serving.export.version import export
from serving.savedmodel.status import Code, StatusError
from tests.serving.conftest import serving
from tests.serving.test_rest import free_port
from tests.training.conftest import terse_run  # noqa: F401 - a fixture

TEXTS = ["the cat sleeps", "a dog sees the cat", "", "the dog"]


@pytest.fixture(scope="module")
def version(terse_run, tmp_path_factory):  # noqa: F811
    return export([terse_run], tmp_path_factory.mktemp("models") / "m", num_results=3)


@pytest.fixture(scope="module")
def server(version):
    flags = ["--model_name=m", f"--model_base_path={version.parent}"]
    rest = f"--rest_api_port={free_port()}"
    with serving(*flags, rest, "--enable_model_warmup=false") as server:
        yield server


@pytest.fixture(scope="module")
def call(server):
    """Call a signature in the server's session: another would prepare each signature again."""
    with server._manager.acquire(model_pb2.ModelSpec(name="m")) as servable:
        session = servable.model.session

        def run(signature, **inputs):
            protos = {
                name: tf.make_tensor_proto([text.encode() for text in texts], tf.string)
                for name, texts in inputs.items()
            }
            return session.run(session.signatures[signature], protos)

        yield run


def decoded(array):
    return [text.decode() for text in array]


def test_an_empty_prefix_is_translate_bit_for_bit(call):
    plain = call("translate", text=TEXTS)
    found = call("complete", text=TEXTS, prefix=[""] * len(TEXTS))
    for name, array in plain.items():
        np.testing.assert_array_equal(found[name], array)


def test_translations_begin_with_every_beginning_of_one(call):
    best = decoded(call("nbest", text=TEXTS)["translations"][1])
    for text in best:
        for end in range(len(text) + 1):
            prefix = text[:end]
            found = call("complete", text=["a dog sees the cat"], prefix=[prefix])
            assert found["translation"][0].decode().startswith(prefix)
            assert np.isfinite(found["score"]).all()


def test_the_whole_translation_ends_there(call):
    begun = call("complete", text=TEXTS, prefix=["", "Il do", "Elle m", "Le po"])
    found = call("complete", text=TEXTS, prefix=decoded(begun["translation"]))
    assert found["translation"].tolist() == begun["translation"].tolist()
    np.testing.assert_allclose(found["score"], begun["score"], rtol=1e-5)


def test_a_prefix_stays_as_it_was_typed(call):
    (found,) = call("complete", text=TEXTS[:1], prefix=["  Il   m"])["translation"]
    assert found.decode().startswith("  Il   m")


def test_scores_are_those_of_the_translation(call):
    prefix = decoded(call("nbest", text=TEXTS[:2])["translations"][:, 2])
    prefix = [text[: len(text) // 2] for text in prefix]
    found = call("complete", text=TEXTS[:2], prefix=prefix)
    lengths = (found["token_scores"] != 0).sum(1)
    total = found["token_scores"].sum(1) / ((5 + lengths) / 6)
    np.testing.assert_allclose(total, found["score"], rtol=1e-5)
    shown = found["tokens"] != b""
    np.testing.assert_array_equal(shown.sum(1), lengths)


def test_words_are_the_translation_and_as_probable_as_their_tokens(call):
    found = call("complete", text=TEXTS, prefix=[""] * len(TEXTS))
    for row, text in enumerate(found["translation"]):
        assert b"".join(found["words"][row]) == text
        # All but the end.
        inside = (found["tokens"][row] != b"") & (found["tokens"][row] != b"</s>")
        probabilities = found["word_probabilities"][row][found["words"][row] != b""]
        expected = found["token_scores"][row][inside].sum()
        np.testing.assert_allclose(np.log(probabilities).sum(), expected, atol=1e-4)


def test_a_prefix_that_no_tokens_spell_is_the_callers_error(call):
    with pytest.raises(StatusError) as caught:
        call("complete", text=TEXTS[:2], prefix=["", "le ☃ de"])
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "prefix[1]" in str(caught.value)
    assert "\n" not in str(caught.value).split(" [[")[0].strip()
    assert "☃" in str(caught.value)


def test_as_many_prefixes_as_texts_are_expected(call):
    with pytest.raises(StatusError, match="as many prefixes as texts"):
        call("complete", text=TEXTS[:2], prefix=[""])


def test_alternatives_are_different_words_and_their_probabilities_sum_to_at_most_1(call):
    text = "a dog sees the cat"
    (words,) = call("complete", text=[text], prefix=["Elle mange"])["words"]
    for place in range(min(len(words), 3)):
        before = b"".join(words[:place]).decode()
        before += " " * words[place].startswith(b" ")
        found = call("alternatives", text=[text], prefix=[before])
        said = decoded(found["words"][0])
        assert len({word for word in said if word}) == sum(map(bool, said))
        assert (np.diff(found["probabilities"][0]) <= 0).all()
        assert 0 < found["probabilities"][0].sum() <= 1 + 1e-4
        for word, translation in zip(said, decoded(found["translations"][0]), strict=True):
            assert not word or translation.startswith(before + word)


def test_alternatives_of_a_begun_word_complete_it(call):
    found = call("alternatives", text=TEXTS[1:2], prefix=[" Elle  po"])
    words = decoded(found["words"][0])
    assert any(words)
    assert all(word.startswith("po") for word in words if word)
    for word, translation in zip(words, decoded(found["translations"][0]), strict=True):
        assert translation.startswith(f" Elle  {word}") or not word


def test_rows_do_not_depend_on_one_another(call):
    prefix = ["Il d", "", "Elle", "Le "]
    together = call("alternatives", text=TEXTS, prefix=prefix)
    for row, text in enumerate(TEXTS):
        alone = call("alternatives", text=[text], prefix=prefix[row : row + 1])
        for name, array in alone.items():
            if array.dtype == object:
                assert together[name][row].tolist() == array[0].tolist()
            else:
                np.testing.assert_allclose(together[name][row], array[0], atol=1e-4)


@pytest.mark.parametrize("name", ["complete", "alternatives"])
def test_prefixes_that_would_fill_the_memory_are_refused(call, name):
    """A prefix of many rows makes all as long: what counts is the longest, times the rows."""
    for prefix in (["a" * (MOST + 1)], ["", "a" * (MOST // 2), ""]):
        with pytest.raises(StatusError, match=f"above {MOST} bytes") as refused:
            call(name, text=["x"] * len(prefix), prefix=prefix)
        assert refused.value.code is Code.INVALID_ARGUMENT


def test_the_client_gives_what_the_model_answers(server, call):
    prefixes = ["Il d", "", "Elle", "Le "]
    complete = call("complete", text=TEXTS, prefix=prefixes)
    alternatives = call("alternatives", text=TEXTS, prefix=prefixes)
    with Translator(f"localhost:{server.port}", "m") as translator:
        found = translator.complete(TEXTS, prefixes)
        words = translator.alternatives(TEXTS, prefixes)
        with pytest.raises(InvalidRequestError, match="no tokens for: ☃"):
            translator.complete(TEXTS[:1], ["☃"])
        plain = translator.translate(TEXTS)
        assert [one.words for one in plain] == [one.words for one in translator.align(TEXTS)]
    for row, one in enumerate(found):
        assert one.text == complete["translation"][row].decode()
        assert "".join(one.words) == (one.text.strip() if TEXTS[row] else "")
        assert len(one.tokens) == len(one.token_scores)
        assert sum(one.token_scores) == pytest.approx(complete["token_scores"][row].sum(), rel=1e-4)
        assert [each.word for each in words[row]] == [
            word.decode() for word in alternatives["words"][row] if word
        ]
    assert found[0].words
    assert len(found[0].words) == len(found[0].word_probabilities)

    async def ask():
        async with AsyncTranslator(f"localhost:{server.port}", "m") as translator:
            return (
                await translator.complete(TEXTS, prefixes),
                await translator.alternatives(TEXTS, prefixes),
            )

    same, again = asyncio.run(ask())
    assert [one.text for one in same] == [one.text for one in found]
    assert [[each.word for each in row] for row in again] == [
        [each.word for each in row] for row in words
    ]


def test_the_command_completes_a_prefix(server, capsys):
    common = ["--target", f"localhost:{server.port}", "--model", "m", TEXTS[0]]
    assert client.main([*common, "--prefix", "Il d"]) == 0
    assert capsys.readouterr().out.startswith("Il d")
    assert client.main([*common, "--prefix", "Elle ", "--alternatives", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert all(one["translation"].startswith("Elle ") for one in json.loads(line)["alternatives"])
    assert client.main([*common, "--prefix", "☃"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(SystemExit):
        client.main([*common, "--prefix", "Il", "--align"])
    assert "--prefix expected" in capsys.readouterr().err


def test_rest_completes_a_prefix(server):
    body = {"signature_name": "complete", "inputs": {"text": TEXTS[:1], "prefix": ["Il d"]}}
    request = urllib.request.Request(
        f"http://localhost:{server.rest_port}/v1/models/m:predict", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)["outputs"]
    assert found["translation"][0].startswith("Il d")
