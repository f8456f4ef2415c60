import concurrent.futures
import io
import json
import pickle
import socket
import subprocess
import sys
import time

import grpc
import pytest

from serving.api import _errors as errors
from serving.client import Hypothesis, Translator
from serving.client import _protobuf as messages
from serving.client import _translate as client
from serving.portable.read import LocalTranslator
from tests.attack.test_client import Server, both, response, tensor
from tests.serving.conftest import respelled

LONG = " ".join(["word"] * 11)
ODD = {"": "", "a\x00b": "A\x00B", "\ud800x": "?X", "日本語 é": "日本語 é", LONG: LONG.upper()[:34]}


@pytest.fixture
def target(shared_server):
    return f"localhost:{shared_server.port}"


@both
def test_answers_are_those_of_their_texts(ask, target):
    def upper(*arguments, **options):
        return ask(target, *arguments, model="upper", timeout=60, **options)

    texts = ["word " * (n * 7 % 5) + f"text {n}" for n in range(23)]
    found = upper([*texts, *ODD], batch_size=5)
    assert [one.text for one in found] == [*(text.upper() for text in texts), *ODD.values()]
    assert [one.text for one in found if one.truncated] == [ODD[LONG]]
    first, second = upper(["One", "Two three"], method="nbest", batch_size=1)
    assert first == [Hypothesis("ONE", -1.0), Hypothesis("one", -0.75), Hypothesis("One", -0.625)]
    assert [each.text for each in second] == ["TWO THREE", "two three", "Two three"]
    short, long = upper(["one", "one two three"], method="align")
    assert (short.source_tokens, short.target_tokens) == (("one",), ("ONE",))
    assert short.attention_weights == ((1.0,),)
    assert long.attention_weights == ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    paragraph = "One is here. Two?\n\nThree words only! 一个。两个。"
    (split,) = upper([paragraph], how={"split": True})
    assert (split.text, split.truncated) == (paragraph.upper(), False)
    assert upper([], how={"split": True}) == []
    metadata = upper(method="metadata")
    assert (metadata.model, metadata.version) == ("upper", 1)
    assert sorted(metadata.signatures) == ["align", "nbest", "serving_default", "translate"]
    assert metadata.signatures["translate"] == {
        "inputs": {"text": "string(?)"},
        "outputs": {"translation": "string(?)", "score": "float(?)", "truncated": "bool(?)"},
    }


@both
@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        ("translate", {"model": "missing"}, "ModelNotFound", "check the name, version and label"),
        ("translate", {"version": 7}, "ModelNotFound", r"Specific\(upper, 7\)"),
        ("translate", {"target": "localhost:1"}, "ServerUnavailable", "check that it runs"),
        ("wait_ready", {"model": "missing"}, "ModelNotFound", "does not serve model 'missing'"),
        ("wait_ready", {"target": "localhost:1"}, "DeadlineExceeded", r"was not .* 0.3 s: wait lo"),
    ],
)
def test_errors_are_typed_and_say_what_to_do(ask, target, method, options, error, message):
    options = {"target": target, "model": "upper", "retries": 1, **options}
    arguments = [["one"]] if method == "translate" else [60 if "missing" in str(options) else 0.3]
    with pytest.raises(getattr(errors, f"{error}Error"), match=message):
        ask(options.pop("target"), *arguments, method=method, **options)


def run(capsys, *arguments):
    status = client.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command_prints_json(target, capsys):
    common = ("--target", target, "--model", "upper", "--json", "one two")
    _, out, _ = run(capsys, *common)
    said = {"source": "one two", "translation": "ONE TWO", "score": -1.0, "truncated": False}
    assert json.loads(out) == said
    _, out, _ = run(capsys, *common, "--nbest", "2")
    first, second = json.loads(out)["hypotheses"]
    assert first == {"text": "ONE TWO", "score": -1.5}
    assert second["text"] == "one two"
    _, out, _ = run(capsys, *common, "--align")
    assert json.loads(out)["target_tokens"] == ["ONE", "TWO"]


def test_the_command_writes_json_of_a_score_that_is_no_number(capsys):
    outputs = {
        "translation": messages.string_tensor([b"M AE1"]),
        "score": tensor(messages.FLOAT, [1], float_val=[float("nan")]),
        "truncated": tensor(messages.BOOL, [1], bool_val=[False]),
        "unknown": messages.string_tensor([b"3\x1b3"]),
    }
    with Server(lambda *_: response(outputs)) as server:
        _, out, err = run(capsys, "--target", server.target, "--model", "m", "--json", "m3\x1b3")
    assert json.loads(out, parse_constant=pytest.fail) == {
        **{"source": "m3\x1b3", "translation": "M AE1", "score": None, "truncated": False},
        "unknown": "3\x1b",
    }
    assert err.endswith("training never saw 3 <U+001B>. Do not trust the output for it\n")


def test_the_command_prints_scores_of_pairs(capsys, onnx_letters):
    _, out, _ = run(capsys, "--local", onnx_letters, "--score-pairs", "ab\ta")
    (score,) = LocalTranslator(onnx_letters).score(["ab"], ["a"])
    tokens = [f"{x} {y:.3f}" for x, y in zip(score.tokens, score.log_probs, strict=True)]
    assert out == f"{score.score:.4f}\t{' '.join(tokens)}\n"


def test_the_command_writes_heat_maps(target, capsys, tmp_path):
    common = ("--target", target, "--model", "upper", "--png", tmp_path / "map.png")
    assert run(capsys, *common, "--align", "one", "two", "")[0] == 0  # the last has no picture
    assert {path.name for path in tmp_path.iterdir()} == {"map-1.png", "map-2.png"}
    assert (tmp_path / "map-1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model missing --wait-ready 60 x", "does not serve model 'missing'"),
        ("--model upper --timeout 0.3 --target SILENT x", "within 0.3 s"),
        ("--model upper --nbest 4 x", "returns at most 3 translations. Use --nbest 3"),
        ("--model upper --score-pairs x", "TEXT<TAB>TRANSLATION, but a line is: x"),
        ("--model upper", "no text"),
    ],
)
def test_the_command_fails_with_one_line(target, capsys, monkeypatch, words, message):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO())))
    with socket.create_server(("localhost", 0)) as silent:
        words = words.replace("SILENT", f"localhost:{silent.getsockname()[1]}").split()
        status, out, err = run(capsys, "--target", target, *words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert message in err


def test_threads_of_a_client_share_one_channel(target, monkeypatch):
    opened, channel = [], grpc.insecure_channel

    def slow(*arguments, **options):
        time.sleep(0.05)
        opened.append(channel(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(grpc, "insecure_channel", slow)
    with Translator(target, "upper") as translator:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(translator.translate, [["one"]] * 8))
        assert [each.text for (each,) in answers] == ["ONE"] * 8
        assert len(opened) == 1
        copy = pickle.loads(pickle.dumps(translator))  # as another process has it
        assert copy.translate(["two"])[0].text == "TWO"
        copy.close()
    with pytest.raises(errors.ServingError, match="is closed: make another one"):
        translator.translate(["one"])


def test_lines_are_answered_as_they_come_and_nobody_need_read_them_all(target):
    command = [sys.executable, "-m", "serving.client", "translate", "--model", "upper"]
    command += ["--target", target]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as process:
        lines = b"\xef\xbb\xbfone\r\n", b"\n", "two é\n".encode()
        for line, answer in zip(lines, (b"ONE\n", b"\n", "TWO é\n".encode()), strict=True):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == answer  # before the input ends
        process.stdin.write(b"word " * 9 + b"\n")
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"Warning: text 4 ")
        process.stdin.write(b"mang\xe9\n")
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"Warning: text 5 is not UTF-8")
        process.stdout.close()
        process.stdin.write(b"three\n" * 9)
        process.stdin.close()
        assert (process.wait(60), process.stderr.read()) == (1, b"")


def test_the_client_is_light():
    code = (
        "import re, sys, asyncio, grpc, grpc.aio\n"
        "import serving.client\n"
        "heavy = [n for n in ('tensorflow', 'keras', 'numpy') if n in sys.modules]\n"
        "peak = re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())\n"
        "print(int(peak[1]) / 1024, *heavy)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    megabytes, *heavy = run.stdout.split()
    assert heavy == []
    assert float(megabytes) < 60


@pytest.fixture(scope="module")
def onnx_letters(onnx_translator, tmp_path_factory):
    """A translator whose sources are read letter by letter."""
    tokens = ["a", "b", " ", *(chr(0x400 + n) for n in range(1000))]
    return respelled(onnx_translator, tmp_path_factory.mktemp("letters") / "1", letters=tokens)


@pytest.mark.parametrize("form", [[], ["--nbest", "2"], ["--align"], ["--score-pairs"], ["--json"]])
def test_what_is_told_of_a_text_is_told_in_every_form(capsys, onnx_letters, form):
    long, odd = " ".join("ab" * 9), "a☺b☺"
    translation = "\ta" if form == ["--score-pairs"] else ""
    texts = [text + translation for text in (long, odd, "ab")]
    status, _, err = run(capsys, "--local", onnx_letters, *form, *texts)
    lines = [line for line in err.splitlines() if line.startswith("Warning: text ")]
    assert (status, [line.split(":")[1][:8] for line in lines]) == (0, [" text 1 ", " text 2"])
    assert "longer than the model reads" in lines[0]
    assert "training never saw ☺." in lines[1]
