import asyncio
import contextlib
import gc
import io
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from serving.api._errors import SignatureNotFoundError
from serving.api._http import host_names
from serving.api._results import Hypothesis
from serving.client import Reader, Translator
from serving.page import _app as app
from serving.page.__main__ import main
from serving.page._app import (
    HEADERS,
    MOST_CHARACTERS,
    MOST_IMAGE,
    STATIC,
    PageSettings,
    look,
)
from serving.page._card import Card
from tests.serving.conftest import free_port
from tests.serving.page.conftest import Page, showing
from tests.serving.page.models import VISITS
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


FILE = {"content-type": "application/octet-stream"}


@pytest.fixture(scope="module")
def target(kinds_server):
    return f"127.0.0.1:{kinds_server.port}"


@pytest.fixture(scope="module")
def bright(target):
    with showing(PageSettings(target, "bright")) as page:
        yield page


@pytest.fixture(scope="module")
def mean(target):
    with showing(PageSettings(target, "mean")) as page:
        yield page


def picture(rng):
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (7, 11)).astype("uint8")).save(file, "png")
    return file.getvalue()


def test_an_image_is_read_with_the_weights_of_the_client(bright, target, rng):
    image = picture(rng)
    status, _, found = bright.ask("api/read", image, FILE)
    with Reader(target, "bright") as reader:
        (expected,) = reader.regions([image])
    assert (status, found["text"], found["tokens"]) == (200, "abcde", [*"abcde"])
    assert found["score"] == expected.score
    np.testing.assert_allclose(found["weights"], expected.attention_weights, atol=5e-5)


def test_the_outcome_is_told_after_each_event(mean):
    question = {"table": VISITS, "id": "patient", "time": "day", "person": "a"}
    status, _, found = mean.ask("api/follow", question)
    other = mean.ask("api/follow", {**question, "person": "b"})[2]
    first = mean.ask("api/follow", {**question, "person": "gone"})[2]
    assert status == 200
    assert (found["people"], found["person"], found["time"]) == (["a", "b"], "a", [0, 10, 30])
    assert found["columns"] == {"bili": ["0.5", "", "0.125"], "note": ["first", "", "last"]}
    assert found["probabilities"] == [0.5, 0.5, 0.3125]
    assert found["weights"] == [[1], [1, 0], [0.5, 0, 0.5]]
    assert (other["time"], other["probabilities"]) == ([3], [0.25])
    assert (found["truncated"], found["notes"]) == (False, [])
    assert first["person"] == "a"


def test_cells_that_are_missing_and_histories_that_are_cut_are_told(mean):
    table = VISITS.replace("a,10,,", "a,10,unknown,") + "a,40,?,\n"
    question = {"table": table, "id": "patient", "time": "day", "person": "a"}
    found = mean.ask("api/follow", question)[2]
    note = "the table: 2 cells are taken as missing in bili: line 3, 'unknown'"
    assert (found["truncated"], found["notes"]) == (True, [note])
    assert found["probabilities"] == [0.5, 0.5, 0.3125, 0.3125]


def visits(**change):
    return {"table": VISITS, "id": "patient", "time": "day", "person": "a", **change}


@pytest.mark.parametrize(
    ("name", "path", "body", "says"),
    [
        ("page", "translate", {"text": 3}, "expected a text"),
        ("page", "translate", {"text": "x" * (MOST_CHARACTERS + 1)}, "expected a text of at most"),
        ("page", "translate", {"text": "a. " * 70}, "at most 64 sentences at once. These are 70"),
        ("page", "translate", {}, "expected a text"),
        ("page", "translate", b"[1]", "expected a JSON object"),
        ("page", "translate", b"\xff", "expected JSON"),
        ("page", "translate", b"[" * 20_000, "expected JSON"),
        ("page", "translate", b" " * 30_000, "expected at most"),
        ("page", "translate", "a form", "expected the content type application/json"),
        ("page", "look", {"texts": []}, "expected 1 to 64 texts"),
        ("page", "look", {"texts": [1]}, "expected 1 to 64 texts"),
        ("bright", "read", b"no image", "image 1"),
        ("bright", "read", b"x" * (MOST_IMAGE + 1), "at most 8,388,608 bytes"),
        ("bright", "read", {}, "octet-stream"),
        ("mean", "follow", visits(table=""), "no column 'patient'"),
        ("mean", "follow", visits(time="bili"), "has no bili, which the model reads; it has day"),
        ("mean", "follow", visits(table=VISITS.replace("30", "1e400")), "but it is '1e400'"),
        ("mean", "follow", visits(table="patient,day\n" + "a,1\n" * 201), "at most 200 visits"),
        ("mean", "follow", visits(table='patient,day\na,"' + "1" * 200_000), "field"),
        ("mean", "follow", visits(person=3), "all text"),
    ],
)
def test_a_bad_request_is_one_line(request, name, path, body, says):
    kind = FILE if path == "read" and body != {} else {}
    if body == "a form":  # another page's
        body, kind = b"{}", {"content-type": "text/plain"}
    status, _, found = request.getfixturevalue(name).ask(f"api/{path}", body, kind)
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
