"""The page answers the examples of a manifest as the client does, served and without a server."""

import json
import shutil

import pytest

from serving.client import Translator
from serving.page._app import PageSettings
from serving.page._card import read_card
from serving.page._files import write
from serving.portable.read import LocalTranslator
from tests.serving.conftest import serving
from tests.serving.javascript import needs_node, packed, run
from tests.serving.page.conftest import showing

EXAMPLES = [
    *("Freitag, den 3. Mai 2024", "12. Juli 2001", "am 12. und 13. Juni", "vom 12.05. bis 3.6."),
    *("z. B. am Montag", "He sleeps. She is eating a green apple.", "Dr. Apple! He sleeps"),
]
ASK = """
import { readFileSync } from "node:fs";
import { answers } from "engine/answers.js";
import { readModel } from "engine/model.js";
const { file, texts } = JSON.parse(readFileSync(0, "utf8"));
const paths = answers(readModel(Uint8Array.from(Buffer.from(file, "base64")).buffer));
const found = [];
for (const text of texts) found.push(await paths["api/translate"]({ text }, async () => {}));
process.stdout.write(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def versions(onnx_translator, tmp_path_factory):
    """Exports with these examples, by whether their sources are sentences."""
    made = {}
    for sentences in (True, False):
        path = tmp_path_factory.mktemp("models") / f"dates-{sentences}" / "1"
        shutil.copytree(onnx_translator, path)
        manifest = json.loads((path / "manifest.json").read_text())
        manifest |= {"examples": EXAMPLES, "sentences": sentences}
        (path / "manifest.json").write_text(json.dumps(manifest))
        made[sentences] = path
    return made


def split_by_client(version):
    with LocalTranslator(version) as translator:
        return [each.text for each in translator.translate(EXAMPLES, split=True)]


def joined(answers):
    return ["".join(x["text"] + " " for x in each["sentences"])[:-1] for each in answers]


def test_a_served_page_answers_the_examples_of_dates_as_the_client(versions):
    version = versions[False]
    card = read_card(version / "manifest.json")
    with serving(base=version.parent) as server:
        target, model = f"127.0.0.1:{server.port}", version.parent.name
        with Translator(target, model) as translator:
            wanted = [each.text for each in translator.translate(EXAMPLES)]
            split = [each.text for each in translator.translate(EXAMPLES, split=True)]
        with showing(PageSettings(target, model, card=card)) as page:
            found = [page.ask("api/translate", {"text": text})[2] for text in card.examples]
    assert joined(found) == split == split_by_client(version) == wanted
    assert [len(each["sentences"]) for each in found] == [1] * len(EXAMPLES)


@needs_node
@pytest.mark.parametrize("sentences", [True, False])
def test_a_page_without_a_server_answers_the_examples_as_the_client(versions, sentences, tmp_path):
    version = versions[sentences]
    write(version, tmp_path / "page.html", single=True)
    found = run(ASK, given={"file": packed(version), "texts": EXAMPLES})
    assert joined(found) == split_by_client(version)
    wholes = [1, 1, 1, 1, *([3, 2, 3] if sentences else [1, 1, 1])]
    assert [len(each["sentences"]) for each in found] == wholes
