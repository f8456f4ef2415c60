"""A translator in this process against the run that it was exported from."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from serving.client._translate import main as client
from serving.page.__main__ import main as page
from serving.portable.read import LocalTranslator
from serving.portable.read._model import Folder
from tests.serving.conftest import respelled

TEXTS = ["She is eating a green apple.", "", "He sleeps.", "zzz ★ \ud800", "a\x00b", "the " * 40]


@pytest.fixture(scope="module")
def version(onnx_translator):
    return onnx_translator


@pytest.fixture(scope="module")
def translator(version):
    return LocalTranslator(version)


def test_the_block_of_the_guide_runs(version, translator, capsys):
    guide = Path(__file__).parents[4] / "docs" / "guides" / "without-a-server.md"
    (block,) = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    exec(block.replace("models/mine-onnx", str(version.parent)), {})
    asked = ["She is eating a green apple.", "He doesn't like apples."]
    wanted = [f"{one.text} {one.score}" for one in translator.translate(asked)]
    assert capsys.readouterr().out.splitlines() == wanted


def test_no_texts_have_no_answers_and_sentences_are_split(translator):
    assert translator.translate([]) == []
    (split,) = translator.translate(["He sleeps. He sleeps."], split=True)
    (one,) = translator.translate(["He sleeps."])
    assert split.text == f"{one.text} {one.text}"


def test_of_a_model_of_both_forms_the_newest_in_onnx_is_taken(version, tmp_path):
    for number in ("9", "10"):
        (tmp_path / number).symlink_to(version)
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "saved_model.pb").touch()
    assert Folder(tmp_path).path == tmp_path / "10"


def test_threads_share_the_rows_of_a_batch(version, translator, monkeypatch):
    texts = [*TEXTS, "She reads a book.", "They drink cold water every day."]
    together, both, run = LocalTranslator(version, threads=2), threading.Barrier(2), Folder.run

    def meet(folder, graph, inputs):
        if graph == "translator":  # both threads run it at the same time
            both.wait(timeout=10)
        return run(folder, graph, inputs)

    monkeypatch.setattr(Folder, "run", meet)
    found = together.translate(texts)
    monkeypatch.undo()
    assert [one.text for one in found] == [one.text for one in translator.translate(texts)]
    given = ["Il dort."] * len(texts)
    for one, other in zip(
        together.score(texts, given), translator.score(texts, given), strict=True
    ):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-5)


def test_letters_that_training_never_saw_are_named(version, tmp_path):
    tokens = [chr(code) for code in range(ord("a"), ord("a") + 76)]
    folder = respelled(version, tmp_path / "1", letters=tokens)
    spoken = LocalTranslator(folder)
    with pytest.warns(UserWarning, match=r"^training never saw 3 <U\+001B>. Do not"):
        first, second = spoken.translate(["MACEBE", "m3\x1b3"])
    assert (first.unknown, second.unknown) == ("", "3\x1b")
    assert first == spoken.translate(["macebe"])[0]


def test_characters_that_an_output_lacks_are_escaped(version, tmp_path, monkeypatch):
    folder, said = str(shutil.copytree(version, tmp_path / "é" / "1")), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said, "ascii", write_through=True))
    assert client(["--local", folder, "--align", "She is eating."]) == 0
    assert page(["--static", folder, "--output", f"{folder}/../site"]) == 0
    assert b"\\u2581She" in said.getvalue()
    assert said.getvalue().endswith(b"\\xe9/1/../site\n")


def test_the_command_prints_what_the_client_prints(version, capsys, monkeypatch):
    local = ["--local", str(version.parent)]
    content = io.BytesIO("\ufeffa cat\r\n\r\nthe dog\r\n".encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    assert client([*local, "--json"]) == 0
    sources = [json.loads(line)["source"] for line in capsys.readouterr().out.splitlines()]
    assert sources == ["a cat", "", "the dog"]
    assert client([*local, "--json", "He sleeps."]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["source"] == "He sleeps."
    assert client([*local, "--metadata"]) == 0
    metadata = json.loads(capsys.readouterr().out)
    assert (metadata["model"], metadata["version"]) == ("old", 1)
    assert set(metadata["signatures"]) == {"translate", "nbest", "align", "score"}
    assert client(["--local", str(version.parent.parent), "a"]) == 1
    assert "manifest.json" in capsys.readouterr().err


def test_neither_tensorflow_nor_keras_nor_grpc_is_imported(version):
    code = (
        "import sys; from serving.client._translate import main\n"
        f"assert main(['--local', {str(version)!r}, 'He sleeps.']) == 0\n"
        "heavy = {'tensorflow', 'keras', 'grpc', 'google', 'onnx', 'scipy'}\n"
        "assert not heavy & {name.split('.')[0] for name in sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_width": 10**6}, "vocabulary"),
        ({"batch_size": 0}, "batch_size"),
        ({"threads": 0}, "thread"),
        ({"length_penalty": float("nan")}, "length_penalty.* Received: nan"),
        ({"beam_width": 0}, r"beam_width.* Received: \d, 0, "),
    ],
)
def test_settings_that_are_not_possible_are_refused(version, settings, message):
    with pytest.raises(ValueError, match=message):
        LocalTranslator(version, **settings)


def test_a_text_is_cut_before_it_is_tokenized(version, monkeypatch):
    translator, read = LocalTranslator(version), []
    encode = translator._source.encode
    monkeypatch.setattr(translator._source, "encode", lambda x: read.extend(x) or encode(x))
    most = translator.manifest["settings"]["max_source_length"]
    texts = ["She sings. " * 100_000, "She sings."]
    long, short = translator.translate(texts)
    assert max(map(len, read)) <= 64 * most
    assert (long.truncated, short.truncated) == (True, False)
    assert long == translator.translate(["She sings. " * 99])[0]
