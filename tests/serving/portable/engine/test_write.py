"""A page without a server: its files, the exports that are refused, the engine as a module."""

import json
import re
import shutil

import pytest

from serving.page.__main__ import main
from serving.page._files import write
from serving.portable.engine._scripts import join, named
from serving.portable.read import LocalTranslator
from tests.serving.javascript import needs_node, run


@pytest.fixture
def written(versions, tmp_path):
    output = tmp_path / "page.html"
    words = ["--static", str(versions["int8"]), "--output", str(output), "--single-file"]
    assert main([*words, "--example", "</script> é"]) == 0
    return output.read_text(encoding="utf-8")


def test_one_file_names_no_other(written):
    assert re.findall(r'(?:src|href)="(?!data:)', written) == []
    assert "default-src 'none'" in written
    assert "connect-src" not in written
    assert written.count("</script>") == written.count("<script") == 3


def test_a_folder_has_what_its_page_names(versions, tmp_path, capsys):
    words = ["--static", str(versions["float32"].parent), "--output", str(tmp_path / "site")]
    assert main(words) == 0
    assert main([*words, "--single-file"]) == 1  # one file replaces no folder
    assert capsys.readouterr().out == f"Written {tmp_path / 'site'}\n"
    html = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    named = {*re.findall(r'(?:src|href)="([^"]+)"', html), "index.html", "worker.js", "model.bin"}
    named |= {"engine.js", "engine.d.ts"}  # for programs of the user's own
    assert {path.name for path in (tmp_path / "site").iterdir()} == named


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"copies": True}, "copies words"),
        ({"settings": {"replaces_unknown": True}}, "was exported with --replace-unknown"),
    ],
)
def test_what_the_browser_does_not_search_is_refused(versions, tmp_path, capsys, change, named):
    folder = tmp_path / "1"
    shutil.copytree(versions["float32"], folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["settings"] |= change.pop("settings", {})
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    assert main(["--static", str(folder), "--output", str(tmp_path / "site")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"cannot run {folder}, which {named}")


def test_folders_that_are_no_translator_are_refused(onnx_predictor, tmp_path, capsys):
    words = ["--output", str(tmp_path / "site"), "--static"]
    assert main([*words, str(tmp_path / "nothing")]) == 1
    assert main([*words, str(onnx_predictor)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "is a model to predict. A page without a server needs" in errors[1]
    assert not (tmp_path / "site").exists()


def test_modules_become_one_script(tmp_path):
    (tmp_path / "a.js").write_text(
        'import { b } from "./b.js";\nexport const a = 1;\nexport async function f() {}\nb(a);\n'
    )
    (tmp_path / "b.js").write_text("export function b() {}\nconst a = 2;\n")
    script = join("a", named(tmp_path.iterdir()))
    assert script.index("const module_b") < script.index("const { b } = module_b;")
    assert "return { a, f };" in script
    (tmp_path / "b.js").write_text("export default 3;\n")
    with pytest.raises(ValueError, match="Received: export default 3"):
        join("a", named(tmp_path.iterdir()))


ASK = """
import { readFile } from "node:fs/promises";
import * as engine from "SITE/engine.js";
const model = await engine.load(await readFile(new URL("SITE/model.bin")));
const found = ["He sleeps.", "", "She is eating."].map((text) => engine.translate(model, text));
const refused = await engine.read(model, new Blob([])).catch((error) => error.message);
console.log(JSON.stringify({ names: Object.keys(engine).sort(), found, refused }));
"""


@needs_node
def test_the_entry_translates_as_python(versions, tmp_path):
    write(versions["float32"], tmp_path / "site", single=False)
    (tmp_path / "site" / "package.json").write_text('{"type": "module"}')
    answer = run(ASK.replace("SITE", (tmp_path / "site").as_uri()))
    assert answer["names"] == ["load", "read", "translate"]
    types = (tmp_path / "site" / "engine.d.ts").read_text()
    assert all(f"export function {name}(" in types for name in answer["names"])
    assert answer["refused"] == "read needs a model of images, but this one reads texts"
    wanted = LocalTranslator(versions["float32"]).translate(["He sleeps.", "", "She is eating."])
    for one, other in zip(answer["found"], wanted, strict=True):
        assert one["text"] == other.text == one["hypotheses"][0]["text"]
        assert one["score"] == pytest.approx(other.score, abs=1e-4)
