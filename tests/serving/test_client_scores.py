"""Scores of given translations, by the client and its command."""

import json

import pytest

from serving.client import Score, serving_pb2
from serving.client import _protobuf as messages
from serving.client import _translate as client
from tests.attack.test_client import Server, blocking, response, tensor, with_asyncio


def answer(method, request, number):
    """A token a letter of the translation; its log-probability is minus the text's length."""
    made = serving_pb2.PredictRequest.FromString(request)
    assert made.model_spec.signature_name == "score"
    texts, translations = (made.inputs[name].string_val for name in ("text", "translation"))
    width = max(map(len, translations)) + 1
    tokens, log_probs = [], []
    for text, translation in zip(texts, translations, strict=True):
        said = [bytes([letter]) for letter in translation] + [b"</s>"]
        padding = width - len(said)
        tokens += said + [b""] * padding
        log_probs += [-float(len(text))] * len(said) + [0.0] * padding
    rows = len(texts)
    return response(
        {
            "score": tensor(messages.FLOAT, [rows], float_val=[-len(text) for text in texts]),
            "tokens": tensor(messages.STRING, [rows, width], string_val=tokens),
            "log_probs": tensor(messages.FLOAT, [rows, width], float_val=log_probs),
            "truncated": tensor(
                messages.BOOL, [rows], bool_val=[len(text) > 5 for text in translations]
            ),
        }
    )


@pytest.fixture
def server():
    with Server(answer) as server:
        yield server


EXPECTED = [
    Score(-3.0, ("l", "e", "</s>"), (-3.0, -3.0, -3.0)),
    Score(-5.0, ("l", "o", "n", "g", "e", "r", "</s>"), (-5.0,) * 7, True),
    Score(0.0, ("</s>",), (0.0,)),
]
TEXTS, TRANSLATIONS = ["the", "apple", ""], ["le", "longer", ""]


def test_each_translation_has_its_tokens_without_padding(server):
    for ask in (blocking, with_asyncio):
        given = (server.target, TEXTS, TRANSLATIONS)
        assert ask(*given, method="score", batch_size=2) == EXPECTED
    assert len(server.asked) == 4
    assert blocking(server.target, [], [], method="score") == []


def test_the_command_reads_pairs(server, capsys):
    common = ["--target", server.target, "--model", "m", "--score-pairs"]
    assert client.main([*common, "the\tle", "apple\tlonger"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "-3.0000\tl -3.000 e -3.000 </s> -3.000"
    assert err.startswith("Warning: text 2 is longer than the model reads")
    assert client.main([*common, "--json", "the\tle"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["translation"]) == ("the", "le")
    assert found["tokens"] == ["l", "e", "</s>"]
    assert client.main([*common, "no translation"]) == 1
    assert capsys.readouterr().err == (
        "error: --score-pairs needs TEXT<TAB>TRANSLATION, but a line is: no translation\n"
    )


def test_letters_that_training_never_saw_are_warned_of(capsys):
    def spell(*_):
        return response(
            {
                "translation": tensor(messages.STRING, [1], string_val=[b"M AE1"]),
                "score": tensor(messages.FLOAT, [1], float_val=[float("nan")]),
                "truncated": tensor(messages.BOOL, [1], bool_val=[False]),
                "unknown": tensor(messages.STRING, [1], string_val=[b"3\x1b3"]),
            }
        )

    with Server(spell) as server:
        common = ["--target", server.target, "--model", "m"]
        assert client.main([*common, "--json", "m3\x1b3"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out, parse_constant=pytest.fail) == {
        **{"source": "m3\x1b3", "translation": "M AE1", "score": None, "truncated": False},
        "unknown": "3\x1b",
    }
    assert err == "Warning: text 1: training never saw 3 <U+001B>. Do not trust the output for it\n"
