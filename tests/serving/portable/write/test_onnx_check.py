"""The check of an ONNX export: what is well passes, what is broken is found."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from serving.check.__main__ import main
from serving.check._onnx import check_folder
from serving.check._questions import TEXTS
from serving.export.__main__ import main as export_command
from serving.portable.read import LocalTranslator
from serving.portable.read._manifest import WEIGHTS
from tests.serving.conftest import TEXT_RUN
from training.decode.texts import make_translator


@pytest.fixture
def version(onnx_translator, tmp_path):
    return Path(shutil.copytree(onnx_translator, tmp_path / "old" / "1"))


def test_an_export_is_ready_to_use(version, capsys):
    assert main([str(version)]) == 0
    assert capsys.readouterr().out == f"{version}: ready to use\n"


@pytest.fixture(scope="module")
def translators():
    """The run's own, by their settings: one is compiled for all cases."""
    return {}


EXAMPLES = ["elle", "la pomme"]
OWN = [text.decode() for text in TEXTS]


@pytest.mark.parametrize(
    ("weights", "wrong", "same"),
    [
        ("float32", OWN[:3], False),  # of 17 texts two may be answered otherwise
        ("int8", OWN[:8], True),  # in eight bits eight
        ("int8", EXAMPLES, False),  # texts of the check's own are unlike what a pronouncer learned
    ],
)
def test_it_is_compared_with_its_run(version, translators, monkeypatch, weights, wrong, same):
    manifest = json.loads((version / "manifest.json").read_text())
    manifest["settings"]["weights"] = weights
    if wrong is EXAMPLES:
        manifest["examples"] = EXAMPLES
    (version / "manifest.json").write_text(json.dumps(manifest))
    translate = LocalTranslator.translate

    def falsify(self, texts):
        answers = zip(translate(self, texts), texts, strict=True)
        return [dataclasses.replace(x, text="?") if text in wrong else x for x, text in answers]

    def make(runs, settings):
        return translators.setdefault(settings, make_translator(runs, settings))

    monkeypatch.setattr(LocalTranslator, "translate", falsify)
    monkeypatch.setattr("training.decode.texts.make_translator", make)
    assert bool(check_folder(version, run=TEXT_RUN)) == (not same)


def test_an_export_in_eight_bits_says_how_it_differs(tmp_path, capsys):
    words = ["--run", str(TEXT_RUN), "--output", str(tmp_path / "old"), "--beam-width", "2"]
    words += ["--nbest", "1", "--format", "onnx", "--weights", "int8"]
    export_command(words)
    version = tmp_path / "old" / "1"
    found = json.loads((version / "manifest.json").read_text())["agreement"]
    assert 0 < found["same"] <= found["texts"]
    said = capsys.readouterr().out
    assert f"{found['same']} of {found['texts']} answers are the same" in said
    assert check_folder(version) == []


def forget_sums(version):
    """Leave the sums of files out of the manifest, as an export of before has none."""
    manifest = json.loads((version / "manifest.json").read_text())
    del manifest["files"]
    (version / "manifest.json").write_text(json.dumps(manifest))


def test_weights_that_are_not_finite_are_found(version):
    forget_sums(version)
    values = np.fromfile(version / WEIGHTS, "float32")
    values[np.flatnonzero(values)[:3]] = np.nan
    values.tofile(version / WEIGHTS)
    assert any("weights not finite" in finding for finding in check_folder(version))


def test_operators_that_are_not_onnx_are_found(version):
    forget_sums(version)
    path = version / "step.onnx"
    model = onnx.load(str(path), load_external_data=False)
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    path.write_bytes(model.SerializeToString())
    assert "step.onnx has operators of com.microsoft" in check_folder(version)
