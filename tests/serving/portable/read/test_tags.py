"""Tags of languages in front of words, "[cy] ysgol", in the lexicon command and in Python."""

import io
import json
import sys

import pytest

from serving.client._translate import main
from serving.portable.read import LocalTranslator
from serving.portable.read._pronouncer import Pronouncer
from tests.serving.conftest import respelled

WORDS = ["cat", "donaudampfschifffahrt"]


@pytest.fixture
def model(onnx_translator, tmp_path):
    """A pronouncer of nonsense, whose training words are said to have tags."""
    folder = tmp_path / "1"
    letters = "[] abcdefghijklmnopqrstuvwxyz'" + "".join(map(chr, range(0x400, 0x500)))
    respelled(
        onnx_translator, folder, letters=letters, symbols=[f"p{number}" for number in range(1000)]
    )
    change(folder, {"open": 4, "close": 5, "space": 6, "longest": 5})
    return folder


def change(folder, tag, fewest=0.0):
    """Write the entry `spelling` of a manifest, with a tag or without."""
    manifest = json.loads((folder / "manifest.json").read_text())
    spelling = {"whole": 12, "window": 12, "context": 3, "fewest": fewest}
    manifest["settings"]["max_source_length"] = 40
    manifest["spelling"] = spelling | ({"tag": tag} if tag else {})
    (folder / "manifest.json").write_text(json.dumps(manifest))


def run(folder, monkeypatch, capsys, *words):
    """Run the command on WORDS; return its status, its lines and what it prints as errors."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(WORDS).encode())))
    try:
        status = main(["--local", str(folder), "--format", "tsv", *words])
    except SystemExit as error:
        status = error.code
    out, err = capsys.readouterr()
    return status, out.splitlines(), err


def test_the_command_reads_words_with_the_tag_and_writes_them_without(
    model, monkeypatch, capsys, tmp_path
):
    answers = LocalTranslator(model).translate([f"[cy] {word}" for word in WORDS])
    wanted = [f"{word}\t{x.text}" for word, x in zip(WORDS, answers, strict=True)]
    found = run(model, monkeypatch, capsys, "--tag", "cy")
    assert found[2] == ""
    assert found[:2] == (0, wanted)
    _, untagged, _ = run(model, monkeypatch, capsys)
    assert untagged != wanted
    own = tmp_path / "own.tsv"
    own.write_text("cat\tp1 p2\n")
    listed = run(model, monkeypatch, capsys, "--tag", "cy", "--lexicon", str(own))
    assert listed == (0, ["cat\tp1 p2", wanted[1]], "")


def test_a_tag_is_written_as_in_training(model):
    assert Pronouncer(model, tag="cy").spelled("‘Ysgol’") == "[cy] Ysgol"
    change(model, {"open": 4, "close": 5, "space": 0, "longest": 4})
    assert Pronouncer(model, tag="cy").spelled("ysgol") == "[cy]ysgol"
    assert Pronouncer(model).spelled("ysgol") == "ysgol"


def test_letters_of_a_tag_need_no_phones(model):
    change(model, {"open": 4, "close": 5, "space": 6, "longest": 5}, fewest=0.5)
    for count, cut in ((2, True), (3, False)):  # of 7 letters, at least 3.5 with the end
        assert Pronouncer(model).is_cut("[cy] abcdefg", ["p1"] * count) is cut
    change(model, None, fewest=0.5)
    assert Pronouncer(model).is_cut("[cy] abcdefg", ["p1"] * 3)


def test_a_model_without_tags_is_told(model, monkeypatch, capsys):
    change(model, None)
    status, lines, err = run(model, monkeypatch, capsys, "--tag", "cy")
    assert (status, lines) == (1, [])
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "expected a model of words with tags, such as [cy]" in err


def test_a_manifest_with_half_a_tag_is_refused(model):
    change(model, {"open": 4, "space": 6, "longest": 5})
    with pytest.raises(ValueError, match=r"spelling\.tag\.close"):
        Pronouncer(model)
