"""Images and histories on the page's server."""

import io

import numpy as np
import pytest
from PIL import Image

from serving.client import Reader
from serving.page._app import MOST_IMAGE, PageSettings
from tests.serving.page.conftest import showing
from tests.serving.page.models import VISITS

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


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b"no image", FILE, 400, "image 1"),
        (b"x" * (MOST_IMAGE + 1), FILE, 400, "at most 8,388,608 bytes"),
        (b"{}", {}, 400, "octet-stream"),
    ],
)
def test_what_is_no_image_is_one_line(bright, body, headers, status, says):
    found = bright.ask("api/read", body, headers)
    assert found[0] == status
    assert says in found[2]["error"]
    assert "\n" not in found[2]["error"]


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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"table": ""}, "no column 'patient'"),
        ({"time": "bili"}, "a history has no bili, which the model reads; it has day, time, note"),
        ({"table": VISITS.replace("30", "1e400")}, "but it is '1e400'"),
        ({"table": "patient,day\n" + "a,1\n" * 201}, "at most 200 visits"),
        ({"table": 'patient,day\na,"' + "1" * 200_000}, "field"),
        ({"person": 3}, "all text"),
    ],
)
def test_a_table_that_makes_no_sense_is_one_line(mean, change, says):
    question = {"table": VISITS, "id": "patient", "time": "day", "person": "a", **change}
    status, _, found = mean.ask("api/follow", question)
    assert status == 400
    assert says in found["error"]
    assert "\n" not in found["error"]
