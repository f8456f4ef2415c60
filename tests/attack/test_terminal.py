"""A server's words on a user's terminal: nothing that it answers steers it."""

import math
import os
import re
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest

from serving import predict, read
from serving.api.printing import printable
from serving.client import __main__ as client
from serving.client import protobuf, serving_pb2
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
    "--scores": {"translation": strings(1), **ONE},
    "--nbest=2": {"translations": strings(1, 2), "scores": floats(1, 2)},
    "--align": {"translation": strings(1), **PAIR, "attention_weights": floats(1, 2, 2)},
    "--score": {**ONE, "tokens": strings(1, 2), "log_probs": floats(1, 2)},
}


METADATA, SIGNATURES = serving_pb2.GetModelMetadataResponse(), serving_pb2.SignatureDefMap()
SIGNATURES.signature_def["predict"].inputs["time"].dtype = protobuf.FLOAT
METADATA.metadata["signature_def"].value = SIGNATURES.SerializeToString()


def asked(main, words, outputs):
    def answer(method, *_):
        return METADATA.SerializeToString() if method.endswith("Metadata") else response(outputs)

    with Server(answer) as server:
        return main(["--target", server.target, "--model", "m", *words])


def assert_harmless(said, lines):
    assert not STEERS.search(said)
    assert said.count("\n") == lines


@pytest.mark.parametrize(("word", "lines"), [*zip(OUTPUTS, (1, 3, 5, 1), strict=True)])
def test_translations_and_tokens_are_printed_without_steering_the_terminal(word, lines, capsys):
    text = "text\ttranslation" if word == "--score" else "text"
    assert asked(client.main, [word, text], OUTPUTS[word]) == 0
    said = capsys.readouterr().out
    assert_harmless(said, lines)
    assert HARMLESS in said
    assert r"\x1b[2J\rb\x9b31mc" in said
    assert asked(client.main, [word, "--json", text], OUTPUTS[word]) == 0
    said = capsys.readouterr().out
    assert_harmless(said, 1)
    assert r"\u001b[2J\rb\u009b31mc" in said


def test_texts_of_images_and_ids_of_tables_are_printed_without_steering_it(capsys, tmp_path):
    image, table = tmp_path / "a.png", tmp_path / "visits.csv"
    image.write_bytes(b"anything")
    person = HOSTILE.replace("\n", "").replace("\r", "")  # which the table's own format takes
    table.write_text(f"id,time\n{person},1\n", encoding="utf-8")
    outputs = {"probability": floats(1), "attention_weights": floats(1, 1)}
    for form in ([], ["--json"]):
        assert asked(read.main, [str(image), *form], {"text": strings(1), "score": floats(1)}) == 0
        assert_harmless(capsys.readouterr().out, 1)
        assert asked(predict.main, [str(table), *form], outputs) == 0
        assert_harmless(capsys.readouterr().out, 1)


DETAILS = HOSTILE.replace("\n", " ") + HARMLESS


@pytest.mark.parametrize(
    "answer",
    [(grpc.StatusCode.UNKNOWN, DETAILS), response({SAID.decode(): strings(1)})],
    ids=["details of an error", "names of outputs"],
)
def test_errors_are_printed_in_one_line(answer, capsys):
    with Server(lambda *_: answer) as server:
        assert client.main(["--target", server.target, "--model", "m", "text"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert_harmless(said, 1)


def test_what_is_printable_is_all_that_a_language_needs():
    assert printable(HARMLESS) == HARMLESS
    assert printable("\ud800\t\x85") == r"\ud800\t\x85"


# A background job of a script ignores the signal, and so would the client. Not by `preexec_fn`:
# beside gRPC's threads a fork may crash before it is the client.
CLIENT = """\
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("serving.client", run_name="__main__", alter_sys=True)
"""


def test_an_interrupted_client_ends_with_130_and_one_line():
    over = threading.Event()
    with Server(lambda *_: over.wait(25) and b"") as server:
        command = [sys.executable, "-c", CLIENT, "--target", server.target, "--model", "m", "text"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while not server.asked and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
        over.set()
    assert (process.returncode, said) == (130, b"Interrupted.\n")
