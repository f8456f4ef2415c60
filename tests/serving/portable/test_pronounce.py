"""The pronouncers of the examples, in JavaScript and C#, say what the one in Python says.

Node asks ONNX Runtime here through Python; the graph and its weights are those of the folder. The
C# program asks Microsoft's package, in a hosted job that has .NET.
"""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving.portable.read._pronouncer import Pronouncer
from tests.serving.conftest import pronouncer
from tests.serving.javascript import NODE, needs_node

EXAMPLES = Path(__file__).parents[3] / "examples"
RUNTIME = """
import json, sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
for line in sys.stdin:
    feeds = {
        name: np.array(values, kind).reshape(dims)
        for name, (kind, values, dims) in json.loads(line).items()
    }
    names = [each.name for each in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, feeds)))
    print(json.dumps({k: [x.ravel().tolist(), x.shape] for k, x in outputs.items()}), flush=True)
"""
ASK = """
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { load } from "EXAMPLE";
const { python, runtime, folder, words } = JSON.parse(readFileSync(0, "utf8"));
const stdio = ["pipe", "pipe", "inherit"];
const session = spawn(python, ["-c", runtime, `${folder}/translator.onnx`], { stdio });
const lines = createInterface({ input: session.stdout })[Symbol.asyncIterator]();
class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const run = async (feeds) => {
  const plain = ([name, x]) => [name, [x.type, Array.from(x.data, Number), x.dims]];
  const given = Object.fromEntries(Object.entries(feeds).map(plain));
  session.stdin.write(JSON.stringify(given) + "\\n");
  const outputs = JSON.parse((await lines.next()).value);
  const named = ([name, [data, dims]]) => [name, { data, dims }];
  return Object.fromEntries(Object.entries(outputs).map(named));
};
const ort = { Tensor, InferenceSession: { create: async () => ({ run }) } };
const pronounce = await load(ort, (name) => readFile(`${folder}/${name}`));
const found = [];
for (const word of words) found.push(await pronounce(word));
session.stdin.end();
process.stdout.write(JSON.stringify(found));
"""
WORDS = [
    "cat",
    "Café",
    "cafe\u0301",
    "a",
    "",
    "ñu",
    "donaudampfschifffahrtsgesellschaftskapitän" * 2,
    "[de] kapitän",
    "[de] donaudampfschifffahrtsgesellschaftskapitän",
    "[de]donaudampfschifffahrt",
    "[de] ",
    "[deutsch] donaudampfschifffahrt",
    "[de donaudampfschifffahrt",
    "[de] [en] donaudampfschifffahrt",
]


@pytest.fixture(scope="module")
def model(onnx_translator, tmp_path_factory):
    """A pronouncer of nonsense that reads words of more than 12 letters in windows."""
    folder = tmp_path_factory.mktemp("pronouncer") / "1"
    pronouncer(onnx_translator, folder, "\u0301\u0303\u0308", "[] ", max_source_length=100)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["spelling"] = {"whole": 12, "window": 12, "context": 3, "fewest": 0.0}
    manifest["spelling"]["tag"] = {"open": 4, "close": 5, "space": 6, "longest": 5}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@needs_node
def test_the_example_says_what_python_says(model):
    given = {"python": sys.executable, "runtime": RUNTIME, "folder": str(model)}
    done = subprocess.run(
        [
            NODE,
            "--input-type=module",
            "--eval",
            ASK.replace("EXAMPLE", (EXAMPLES / "pronounce.mjs").as_uri()),
        ],
        input=json.dumps({**given, "words": WORDS}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    spoken = dict(Pronouncer(model).pronounce(WORDS))
    for word, one in zip(WORDS, found, strict=True):
        assert bool(one["phones"]) == bool(word)
        if answers := spoken.get(word):
            assert one["phones"] == list(answers[0].phones), word
    assert found[1] == found[2]  # NFC and NFD
    assert len(found[6]["phones"]) > 12


PROJECT = """<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <OutputType>Exe</OutputType>
    <TargetFramework>net8.0</TargetFramework>
    <TreatWarningsAsErrors>true</TreatWarningsAsErrors>
  </PropertyGroup>
  <ItemGroup><PackageReference Include="Microsoft.ML.OnnxRuntime" Version="1.*" /></ItemGroup>
</Project>
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("dotnet"), reason="needs .NET")
def test_the_example_in_c_sharp_says_what_python_says(model, tmp_path):
    (tmp_path / "pronounce.csproj").write_text(PROJECT)
    shutil.copy(EXAMPLES / "Pronounce.cs", tmp_path)
    done = subprocess.run(
        ["dotnet", "run", "--project", tmp_path, "--", model, *WORDS],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    spoken = dict(Pronouncer(model).pronounce(WORDS))
    for word, (written, phones, probability) in zip(WORDS, lines, strict=True):
        assert (written, bool(phones)) == (word, bool(word))
        if answers := spoken.get(word):
            assert phones.split() == list(answers[0].phones), word
            assert abs(float(probability) - math.exp(answers[0].log_prob)) < 2e-4, word
