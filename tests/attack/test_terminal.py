"""A server's words on a user's terminal: nothing that it answers steers it."""

import _thread
import math
import re
import signal
import threading

import grpc
import pytest

from serving.api._printing import printable
from serving.client import _predict as predict
from serving.client import _protobuf as protobuf
from serving.client import _read as read
from serving.client import _translate as client
from serving.client import serving_pb2
from tests.attack.test_client import Server, floats, response, tensor

# A title, a cleared screen, a carriage return, C1's CSI and OSC, a line of its own, text turned
# around; beside them what French, emoji and Persian need.
HOSTILE = "\x1b]0;owned\x07a\x1b[2J\rb\x9b31mc\x9d0;x\x9cd\ne\x7f\u2028\u202ef"
HARMLESS = "«\xa0là\u202f!\xa0» 两个 👩‍🚀 می\u200cروم"
SAID = (HOSTILE + HARMLESS).encode()
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def strings(*shape):
    return tensor(protobuf.STRING, shape, string_val=[SAID] * math.prod(shape))


ONE = {"score": floats(1), "truncated": tensor(protobuf.BOOL, [1], bool_val=[False])}
PAIR = {"source_tokens": strings(1, 2), "target_tokens": strings(1, 2)}
OUTPUTS = {
    "--show-scores": {"translation": strings(1), **ONE},
    "--nbest=2": {"translations": strings(1, 2), "scores": floats(1, 2)},
    "--align": {"translation": strings(1), **PAIR, "attention_weights": floats(1, 2, 2)},
    "--score-pairs": {**ONE, "tokens": strings(1, 2), "log_probs": floats(1, 2)},
}


METADATA, SIGNATURES = serving_pb2.GetModelMetadataResponse(), serving_pb2.SignatureDefMap()
SIGNATURES.signature_def["predict"].inputs["time"].dtype = protobuf.FLOAT
METADATA.metadata["signature_def"].value = SIGNATURES.SerializeToString()


@pytest.fixture
def printed(capsys):
    """Have a command ask a server of these outputs, and print lines that steer nothing."""

    def ask(lines, main, words, outputs, status=0):
        def answer(method, *_):
            about = method.endswith("Metadata")
            return METADATA.SerializeToString() if about else response(outputs)

        with Server(answer if isinstance(outputs, dict) else lambda *_: outputs) as server:
            assert main(["--target", server.target, "--model", "m", *words]) == status
        said = "".join(capsys.readouterr())
        assert not STEERS.search(said)
        assert said.count("\n") == lines
        return said

    return ask


@pytest.mark.parametrize(("word", "lines"), [*zip(OUTPUTS, (1, 3, 5, 1), strict=True)])
def test_translations_and_tokens_are_printed_without_steering_the_terminal(word, lines, printed):
    text = "text\ttranslation" if word == "--score-pairs" else "text"
    said = printed(lines, client.main, [word, text], OUTPUTS[word])
    assert HARMLESS in said
    assert r"\x1b[2J\rb\x9b31mc" in said
    said = printed(1, client.main, [word, "--json", text], OUTPUTS[word])
    assert r"\u001b[2J\rb\u009b31mc" in said


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_texts_of_images_and_ids_of_tables_are_printed_without_steering_it(form, printed, tmp_path):
    image, table = tmp_path / "a.png", tmp_path / "visits.csv"
    image.write_bytes(b"anything")
    person = HOSTILE.replace("\n", "").replace("\r", "")  # which the table's own format takes
    table.write_text(f"id,time\n{person},1\n", encoding="utf-8")
    outputs = {"probability": floats(1), "attention_weights": floats(1, 1)}
    printed(1, read.main, [str(image), *form], {"text": strings(1), "score": floats(1)})
    printed(1, predict.main, [str(table), *form], outputs)


DETAILS = HOSTILE.replace("\n", " ") + HARMLESS


@pytest.mark.parametrize(
    "answer",
    [(grpc.StatusCode.UNKNOWN, DETAILS), response({SAID.decode(): strings(1)})],
    ids=["details of an error", "names of outputs"],
)
def test_errors_are_printed_in_one_line(answer, printed):
    assert printed(1, client.main, ["text"], answer, status=1).startswith("error: ")


def test_what_is_printable_is_all_that_a_language_needs():
    assert printable(HARMLESS) == HARMLESS
    assert printable("\ud800\t\x85") == r"\ud800\t\x85"


def test_an_interrupted_client_ends_with_130_and_one_line(capsys):
    over = threading.Event()

    def interrupt(*_):
        _thread.interrupt_main()
        over.wait(25)
        return b""

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        with Server(interrupt) as server:
            assert client.main(["--target", server.target, "--model", "m", "text"]) == 130
            over.set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "Interrupted.\n"
