import asyncio
import concurrent.futures
import inspect
import io
import json
import pickle
import pydoc
import socket
import subprocess
import sys
import time

import grpc
import pytest

from serving.api import _errors as errors
from serving.client import AsyncTranslator, Hypothesis, Translator
from serving.client import _translate as client
from tests.serving.conftest import respelled

LONG = " ".join(["word"] * 11)


@pytest.fixture
def target(shared_server):
    return f"localhost:{shared_server.port}"


@pytest.fixture
def translator(target):
    with Translator(target, "upper", timeout=60) as translator:
        yield translator


def test_translations_come_back_in_order_over_many_requests(target):
    texts = ["word " * (n * 7 % 5) + f"text {n}" for n in range(23)]
    with Translator(target, "upper", timeout=60, batch_size=5) as translator:
        found = translator.translate(texts)
    assert [one.text for one in found] == [text.upper() for text in texts]


def test_a_text_that_is_cut_is_told_apart_and_leaves_the_others_alone(translator):
    found = translator.translate(["one", LONG, ""])
    assert [one.truncated for one in found] == [False, True, False]
    assert [one.text for one in found] == ["ONE", " ".join(["WORD"] * 7), ""]


def test_nbest_gives_each_text_its_hypotheses(translator):
    first, second = translator.nbest(["One", "Two three"])
    assert first == [Hypothesis("ONE", -1.0), Hypothesis("one", -0.75), Hypothesis("One", -0.625)]
    assert [each.text for each in second] == ["TWO THREE", "two three", "Two three"]


def test_alignments_come_without_their_padding(translator):
    short, long = translator.align(["one", "one two three"])
    assert (short.source_tokens, short.target_tokens) == (("one",), ("ONE",))
    assert short.attention_weights == ((1.0,),)
    assert long.attention_weights == ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def test_a_paragraph_is_split_into_sentences_on_request(translator):
    paragraph = "One is here. Two?\n\nThree words only! 一个。两个。"
    (found,) = translator.translate([paragraph], split=True)
    assert found.text == "ONE IS HERE. TWO?\n\nTHREE WORDS ONLY! 一个。两个。"
    assert not found.truncated
    assert translator.translate([], split=True) == []


@pytest.mark.parametrize("text", ["", "a\x00b", "\ud800x", "日本語 é"])
def test_any_string_can_be_sent(translator, text):
    expected = text.upper().replace("\ud800", "?").replace("É", "é")
    assert translator.translate([text])[0].text == expected


def test_metadata_names_the_version_and_the_signatures(translator):
    metadata = translator.metadata()
    assert (metadata.model, metadata.version) == ("upper", 1)
    assert sorted(metadata.signatures) == ["align", "nbest", "serving_default", "translate"]
    assert metadata.signatures["translate"] == {
        "inputs": {"text": "string(?)"},
        "outputs": {"translation": "string(?)", "score": "float(?)", "truncated": "bool(?)"},
    }


def test_wait_ready_returns_for_a_served_model_and_gives_up_on_another(target, translator):
    translator.wait_ready(timeout=30)
    with (
        Translator(target, "missing") as other,
        pytest.raises(errors.ModelNotFoundError, match="does not serve model 'missing'"),
    ):
        other.wait_ready(timeout=60)
    with (
        Translator("localhost:1", "upper") as absent,
        pytest.raises(errors.DeadlineExceededError, match=r"'upper' was not .* 0.3 s: wait longer"),
    ):
        absent.wait_ready(timeout=0.3)


def test_asyncio_gives_what_the_blocking_client_gives(target, translator):
    made = AsyncTranslator(target, "upper", timeout=60, batch_size=2)  # no loop runs yet
    texts = ["one", "two", "three. Four."]

    async def ask():
        async with made as other:
            await other.wait_ready(30)
            several = other.translate(texts), other.translate(texts, split=True), other.nbest(texts)
            return *await asyncio.gather(*several), await other.align(texts), await other.metadata()

    plain, split, nbest, aligned, metadata = asyncio.run(ask())
    assert plain == translator.translate(texts)
    assert split == translator.translate(texts, split=True)
    assert nbest == translator.nbest(texts)
    assert aligned == translator.align(texts)
    assert metadata == translator.metadata()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "missing"}, errors.ModelNotFoundError, "check the name, version and label"),
        ({"version": 7}, errors.ModelNotFoundError, r"Specific\(upper, 7\)"),
        ({"target": "localhost:1"}, errors.ServerUnavailableError, "check that it runs"),
    ],
)
def test_errors_are_typed_and_say_what_to_do(target, options, error, message):
    options = {"target": target, "model": "upper", "retries": 1, **options}

    async def ask():
        async with AsyncTranslator(**options) as other:
            await other.translate(["one"])

    for translate in (lambda: Translator(**options).translate(["one"]), lambda: asyncio.run(ask())):
        with pytest.raises(error, match=message):
            translate()


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


def test_methods_say_what_they_take_and_return():
    for kind, waits in ((Translator, False), (AsyncTranslator, True)):
        one = kind("localhost:1", "m", retries=0)
        for method in (kind.translate, one.translate):
            assert inspect.iscoroutinefunction(method) == waits
            assert inspect.getdoc(method).startswith("Return the best translation of each text")
        assert str(inspect.signature(one.score)) == (
            "(texts: 'Sequence[str]', translations: 'Sequence[str]') -> 'list[Score]'"
        )
        assert "timeout" in inspect.signature(kind).parameters
        assert f"{'async ' * waits}metadata(" in pydoc.render_doc(
            one.metadata, renderer=pydoc.plaintext
        )


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
    command = [
        sys.executable,
        "-m",
        "serving.client",
        "translate",
        "--target",
        target,
        "--model",
        "upper",
    ]
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
