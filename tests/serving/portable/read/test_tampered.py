"""Exports of strangers, tampered with at random: one line, no trace, nothing read from outside."""

import json
import os
import random
import shutil
from functools import partial

import pytest

from serving.client._predict import main as predict
from serving.client._read import main as read
from serving.client._translate import main as client
from serving.page.__main__ import main as page
from serving.portable.read._manifest import read_manifest
from training.sources.image import _digits as digits

DAMAGES = 15
SECRET = "in a folder of the user"
SECRETS = "secret.json"


def values(rng, outside):
    """Something of any type and size, a name of a file outside among them."""
    deep = []
    for _ in range(60):
        deep = [deep]
    numbers = [True, -1, 0, 1, 7, 2**31, 2**70, 10**400, float("inf"), float("nan"), 0.5]
    names = ["", "..", f"../{SECRETS}", str(outside), "/dev/zero", "a\0b", "\x1b[31mred", "a/b"]
    return rng.choice([None, *numbers, *names, [], {}, [[]], [None], {"a": {}}, deep])


def places(tree, path=()):
    """Yield the way to each part of a tree, of lists to the first parts alone."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree[:5])
    for key, part in parts:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


def damage_tree(rng, path, outside):
    """Remove or replace parts of a JSON file, or make it deep."""
    tree = json.loads(path.read_text())
    for _ in range(rng.choice([1, 1, 2])):
        *way, key = rng.choice(list(places(tree)))
        parent = tree
        for each in way:
            parent = parent[each]
        if rng.random() < 0.3:
            del parent[key]
        else:
            parent[key] = values(rng, outside)
    path.write_text("[" * 100_000 if rng.random() < 0.05 else json.dumps(tree))


def damage_bytes(rng, path):
    """Change, cut out, insert or cut off bytes of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 20])):
        start = rng.randrange(len(data) + 1)
        end = start + rng.choice([0, 1, 50, len(data)])
        data[start:end] = rng.randbytes(rng.choice([0, 1, 20]))
    path.write_bytes(data)


def damage_file(rng, path, outside):
    """Put something else in the place of a file."""
    path.unlink()
    links = [partial(path.symlink_to, target) for target in ("/dev/zero", outside, path.name)]
    rng.choice([*links, path.mkdir, path.touch, partial(os.mkfifo, path)])()


def damage(rng, folder, outside):
    """Tamper with an export."""
    files = sorted(folder.iterdir())
    kind = rng.random()
    if kind < 0.5:
        trees = [path for path in files if path.suffix == ".json"]
        damage_tree(rng, rng.choice([*trees, *[folder / "manifest.json"] * 3]), outside)
    elif kind < 0.85:
        damage_bytes(rng, rng.choice(files))
    else:
        damage_file(rng, rng.choice(files), outside)


@pytest.fixture(params=["translator", "reader", "predictor"])
def export(request, tmp_path):
    """An export, and the commands that are asked of it."""
    folder = str(tmp_path / "1")
    image, table = tmp_path / "image.png", tmp_path / "visits.csv"
    image.write_bytes(digits.make(1, seed=9).sources[0])
    table.write_text("id,time,bili,sex\n7,1,2.5,m\n7,3,,f\n")
    asks = {
        "translator": [
            lambda: client(["--local", folder, "--json", "He sleeps."]),
            lambda: client(["--local", folder, "--align", "He sleeps.", "x"]),
            lambda: client(["--local", folder, "--score-pairs", "He sleeps.\tIl dort."]),
        ],
        "reader": [lambda: read(["--local", folder, "--json", "--regions", str(image)])],
        "predictor": [lambda: predict(["--local", folder, str(table)])],
    }[request.param]
    asks.append(lambda: page(["--static", folder, "--output", str(tmp_path / "site")]))
    return request.getfixturevalue(f"onnx_{request.param}"), asks


@pytest.mark.parametrize("seed", range(DAMAGES))
def test_no_damage_gives_a_trace_or_reads_outside(export, seed, tmp_path, capsys):
    version, asks = export
    outside = tmp_path / SECRETS
    classes = {"letters": [], "spaces": [], "ideographs": []}
    state = {"kind": "words", "tokens": [SECRET] * 76, "characters": classes}
    outside.write_text(json.dumps(state))
    shutil.copytree(version, tmp_path / "1")
    path = tmp_path / "1" / "manifest.json"
    manifest = json.loads(path.read_text())
    if seed % 3:  # sums are an attacker's, too
        del manifest["files"]
    path.write_text(json.dumps(manifest))
    damage(random.Random(seed), tmp_path / "1", outside)
    for ask in asks:
        status = ask()
        out, err = capsys.readouterr()
        assert status in (0, 1)
        lines = [line for line in err.splitlines() if not line.startswith("Warning: ")]
        assert len(lines) == status
        assert all(line.startswith("error: ") for line in lines)
        assert "\x1b" not in out + err
        assert SECRET not in out + err
    for path in (tmp_path / "site").glob("*"):
        assert SECRET.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../secret.json", "expected names of files"),
        ("/etc/passwd", "expected names of files"),
        ("..", "expected names of files"),
        ("link.json", "a link or device"),
        ("pipe", "a link or device"),
        ("missing.json", "No such file"),
    ],
)
def test_a_tokenizer_is_a_file_of_its_folder(onnx_translator, tmp_path, name, reason):
    folder = tmp_path / "1"
    shutil.copytree(onnx_translator, folder)
    shutil.copy(folder / "source.json", tmp_path / SECRETS)
    (folder / "link.json").symlink_to(tmp_path / SECRETS)
    os.mkfifo(folder / "pipe")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["tokenizers"]["source"]["file"] = name
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=reason) as caught:
        read_manifest(folder)
    assert str(caught.value).count("\n") == 0
