import asyncio
import contextlib
import gc
import math
import re
import subprocess
import sys

import pytest

from serving.api._errors import SignatureNotFoundError
from serving.api._http import host_names
from serving.api._results import Hypothesis
from serving.client import Translator
from serving.page import _app as app
from serving.page.__main__ import main
from serving.page._app import HEADERS, MOST_CHARACTERS, STATIC, PageSettings, look
from serving.page._card import Card
from tests.serving.conftest import free_port
from tests.serving.page.conftest import Page, showing
from tests.serving.test_versions import eventually


@pytest.fixture(scope="module")
def served(shared_server):
    return f"127.0.0.1:{shared_server.port}"


@pytest.fixture(scope="module")
def page(served):
    card = Card({"Data": "capitals"}, examples=("one two",))
    with showing(PageSettings(served, "upper", card=card)) as found:
        yield found


def test_the_model_is_described(page):
    status, _, found = page.ask("api/model")
    assert status == 200
    assert (found["model"], found["version"]) == ("upper", 1)
    assert found["card"]["lines"] == {"Data": "capitals"}
    assert found["card"]["examples"] == ["one two"]
    assert {"translate", "nbest", "align"} <= set(found["signatures"])


def test_a_text_is_translated_sentence_by_sentence(page):
    text = "one two. three!\n four"
    status, _, found = page.ask("api/translate", {"text": text})
    assert status == 200
    assert [one["source"] for one in found["sentences"]] == ["one two.", "three!", "four"]
    assert "".join(one["text"] + one["gap"] for one in found["sentences"]) == text.upper()
    assert page.ask("api/translate", {"text": "a b c d e f g h"})[2]["sentences"][0]["truncated"]
    assert page.ask("api/translate", {"text": " \n"})[2] == {"sentences": []}


def test_the_weights_are_those_of_the_client(page, served):
    texts = ["one two three", "x"]
    _, _, found = page.ask("api/look", {"texts": texts})
    with Translator(served, "upper") as translator:
        aligned, nbest = translator.align(texts), translator.nbest(texts)
    for one, alignment, hypotheses in zip(found["sentences"], aligned, nbest, strict=True):
        assert one["alignment"]["source"] == list(alignment.source_tokens)
        assert one["alignment"]["target"] == list(alignment.target_tokens)
        assert one["alignment"]["weights"] == [list(row) for row in alignment.attention_weights]
        assert [h["text"] for h in one["hypotheses"]] == [h.text for h in hypotheses]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("api/translate", {"text": 3}, "expected a text"),
        ("api/translate", {"text": "x" * (MOST_CHARACTERS + 1)}, "expected a text of at most"),
        ("api/translate", {"text": "a. " * 70}, "at most 64 sentences at once. These are 70"),
        ("api/translate", {}, "expected a text"),
        ("api/translate", b"[1]", "expected a JSON object"),
        ("api/translate", b"\xff", "expected JSON"),
        ("api/translate", b"[" * 20_000, "expected JSON"),
        ("api/translate", b" " * 30_000, "expected at most"),
        (
            "api/translate",
            b"{}",
            "expected the content type application/json",
        ),  # another page's form
        ("api/look", {"texts": []}, "expected 1 to 64 texts"),
        ("api/look", {"texts": [1]}, "expected 1 to 64 texts"),
    ],
)
def test_a_bad_request_is_one_line(page, path, body, says):
    kind = {"content-type": "text/plain"} if body == b"{}" else {}
    status, _, found = page.ask(path, body, kind)
    assert status == 400
    assert says in found["error"]
    assert "\n" not in found["error"]


def test_every_address_of_a_machine_is_no_name_of_it(page):
    """Browsers let pages of other sites ask 0.0.0.0."""
    assert host_names("0.0.0.0", ["a.example"]) == host_names("::", ["a.example"])
    assert host_names("0.0.0.0") == PageSettings("t", "m").hosts
    assert {"a.example", "192.0.2.7"} <= {*host_names("192.0.2.7", ["a.example"])}
    assert page.ask("", headers={"host": "rebound.example"})[0] == 400


def test_translations_that_a_search_did_not_find_are_left_out():
    class Found:
        async def align(self, texts):
            raise SignatureNotFoundError("align")

        async def nbest(self, texts):
            return [[Hypothesis("a", -1.5), Hypothesis("", -math.inf)] for _ in texts]

    found = asyncio.run(look(Found(), {"texts": ["one", "two"]}))
    for sentence in found["sentences"]:
        assert sentence["alignment"] is None
        assert sentence["hypotheses"] == [{"text": "a", "score": -1.5}]


def test_numbers_that_no_json_has_are_one_line(monkeypatch):
    async def translate(translator, body):
        return {"score": math.nan}

    monkeypatch.setattr(app, "translate", translate)
    with showing(PageSettings("127.0.0.1:9", "upper")) as page:
        status, _, found = page.ask("api/translate", {"text": "one"})
    assert (status, found) == (502, {"error": "the model's answer has numbers that are not finite"})


def test_nothing_typed_is_logged(served):
    command = [sys.executable, "-m", "serving.page", "--model", "upper", "--port", "0"]
    typed, refused, broken = secrets = [f"secret{number}" for number in (3, 5, 7)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

    def is_there():
        with contextlib.suppress(OSError):
            return page.ask("healthz")

    with subprocess.Popen([*command, "--target", served], **pipes) as process:
        try:
            line = process.stdout.readline()
            page = Page(int(re.search(r":(\d+)/$", line.strip())[1]))
            eventually(is_there)
            assert page.ask("api/translate", {"text": typed})[0] == 200
            assert page.ask("api/look", {"texts": [typed]})[0] == 200
            assert page.ask("api/translate", {"texts": refused})[0] == 400
            assert page.ask("api/translate", f'{{"text": "{broken}'.encode())[0] == 400
            assert page.ask(f"api/{typed}?text={refused}")[0] == 404
        finally:
            process.terminate()
        said = line + process.stdout.read()
    assert "is shown on" in said
    assert not [secret for secret in secrets if secret in said]


def test_a_server_that_is_gone_is_one_line():
    with showing(PageSettings("127.0.0.1:9", "upper", timeout=2)) as page:
        for path, body in (("api/model", None), ("api/translate", {"text": "one"})):
            status, _, found = page.ask(path, body)
            assert (status, "127.0.0.1:9" in found["error"]) == (502, True)
            assert "\n" not in found["error"]


def test_everything_is_small_and_from_this_host(page):
    total = 0
    for path in ("", "static/rules.js", *(f"static/{file.name}" for file in STATIC.iterdir())):
        status, headers, body = page.ask(path)
        assert status == 200
        assert HEADERS.items() <= {k.lower(): v for k, v in headers.items()}.items()
        total += len(body)
        named = re.findall(rb"https?://[^\s\"'<)]+", body)
        assert set(named) <= {b"http://www.w3.org/2000/svg"}
    assert total < 200_000
    scripts = b"".join(file.read_bytes() for file in STATIC.glob("*.js"))
    assert not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", scripts)


@pytest.mark.parametrize("model", ["upper", "en-fr"])
def test_a_model_that_is_not_there_is_named_when_the_page_starts(
    model, served, monkeypatch, capsys
):
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: sockets[0].close())
    assert main(["--model", model, "--target", served, "--port", str(free_port())]) == 0
    out, err = capsys.readouterr()
    assert "is shown on" in out
    if model == "upper":
        assert err == ""
    else:
        assert err.startswith(f"warning: the server at {served} does not serve model 'en-fr'")
        assert err.count("\n") == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_port_that_is_taken_is_one_line(page, capsys):
    port = page.address.rsplit(":")[-1].strip("/")
    assert main(["--model", "m", "--port", port]) == 1
    gc.collect()  # uvicorn leaves a socket that it could not bind
    assert "Choose another port: --port=N" in capsys.readouterr().err.splitlines()[-1]
