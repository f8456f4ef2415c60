"""Images: every execution reads the same in each, and refuses the same files."""

import base64
import contextlib
import io

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from serving.batch._inputs import Images
from serving.client import AsyncReader, Reader
from serving.page._app import read
from serving.portable.read import LocalReader
from tests.properties.executions import (
    FORMS,
    assert_alike,
    batch,
    examples,
    in_page,
    refusable,
    rest,
    served,
)  # fmt: skip
from tests.serving.javascript import NODE, refusals
from tests.training.conftest import TINY_IMAGES, drawn_reader, no_pictures  # noqa: F401
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest

pytestmark = pytest.mark.slow

SEARCH = {"beam_width": 3, "num_results": 2, "length_penalty": 0.7}
MODES = {"PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"], "JPEG": ["L", "RGB", "CMYK"]}


@st.composite
def files(draw):
    """A PNG or JPEG of some size and kind; often with a changed bit, cut, or with a hole."""
    form = draw(st.sampled_from(sorted(MODES)))
    mode = draw(st.sampled_from(MODES[form]))
    width, height, seed = (draw(st.integers(*ends)) for ends in ((1, 90), (1, 50), (0, 9)))
    rng, file = np.random.default_rng(seed), io.BytesIO()
    noise = rng.integers(0, 256, (height, width, 3)) // draw(st.sampled_from([1, 40, 256]))
    image = Image.fromarray(noise.astype("uint8"))
    if mode == "I;16":
        image = Image.fromarray(noise[..., 0].astype("uint16") * 77)
    options = {"progressive": draw(st.booleans())} if form == "JPEG" else {}
    (image if mode == "I;16" else image.convert(mode)).save(file, form, **options)
    contents = file.getvalue()
    change = draw(st.sampled_from(["", "", "bit", "bit", "cut", "hole", "more"]))
    at = draw(st.integers(0, len(contents) - 1) | st.integers(0, min(40, len(contents) - 1)))
    at = len(contents) - 1 - at if draw(st.booleans()) else at
    if form == "JPEG" and change == "bit":
        at = draw(st.integers(0, 5))  # within a scan, what is wrong is not known
        at = contents.index(b"\xff\xdb") + at
        at = min(at, contents.index(b"\xff\xdb") + 3)
    changed = {
        "": contents,
        "bit": contents[:at] + bytes([contents[at] ^ 1 << seed % 8]) + contents[at + 1 :],
        "cut": contents[:at],
        "hole": contents[:at] + contents[at + 1 + seed :] if form == "PNG" else contents,
        "more": contents + b"x" * seed,
    }
    return changed[change]


def in_training(run):
    translate = make_nbest([run], SearchSettings(**SEARCH))

    def answer(file):
        ((best, *_),) = translate([file])
        return {"text": best.text, "score": best.score}

    return answer


def over_rest(server, model):
    def answer(file):
        given = {"image_bytes": [{"b64": base64.b64encode(file).decode()}]}
        outputs = rest(server, model, "read", given)
        return {name: outputs[name] for name in ("text", "score")}

    return answer


async def read_in_page(client, file):
    answer = await read(client, file)
    return {name: answer[name] for name in ("text", "score")}


@pytest.fixture(scope="module")
def executions(tmp_path_factory):
    """Executions by name: functions from a file to an answer; and readers of several files."""
    folder = tmp_path_factory.mktemp("images")
    run = drawn_reader(TINY_IMAGES, folder / "run")
    with contextlib.ExitStack() as stack:
        server, versions = stack.enter_context(served({"run": run.path}, folder, **SEARCH))
        saved, onnx = (versions["run", form] for form in FORMS)
        found, readers = {"training": in_training(run)}, {"local": LocalReader(onnx)}
        found["batch"] = lambda file: batch(saved, Images(), file, folder, "read.png")[0]
        for form in FORMS:
            model = f"run-{form}"
            client = Reader(f"localhost:{server.port}", model)
            readers[f"gRPC, {form}"] = stack.enter_context(client)
            found[f"REST, {form}"] = over_rest(server, model)
            found[f"page, {form}"] = in_page(AsyncReader, server, model, read_in_page)
        for name, reader in readers.items():
            found[name] = lambda file, reader=reader: vars(*reader.read([file]))
        yield {name: refusable(answer) for name, answer in found.items()}, readers


@examples(20)
@example([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\xff\xd8\xff\xd9", b"GIF89a"])
@given(drawn=st.lists(files(), min_size=1, max_size=4))
def test_every_execution_reads_and_refuses_the_same(executions, drawn):
    answers = {each: list(map(ask, drawn)) for each, ask in executions[0].items()}
    if NODE:  # a browser, which decodes, is not here
        pairs = zip(refusals(drawn), answers["training"], strict=True)
        # A browser has only the upper eight bits, and knows palettes when it decodes.
        assert all(
            "16 bits" in reason or not reason or answer["refused"] for reason, answer in pairs
        )
    assert_alike(answers, [file[:40] for file in drawn], 2e-3)


@examples(6)
@given(drawn=st.lists(files(), min_size=1, max_size=5))
def test_an_image_is_read_alone_as_among_others(executions, drawn):
    found, readers = executions
    for each, reader in readers.items():
        alone, said = list(map(found[each], drawn)), reader.read(drawn, keep_errors=True)
        together = [{"refused": True} if isinstance(x, Exception) else vars(x) for x in said]
        assert_alike({"alone": alone, "together": together}, [file[:40] for file in drawn], 2e-3)
