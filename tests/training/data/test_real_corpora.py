"""The real corpora, where they are there: their splits, sizes, alphabets and checksums."""

import gzip
import os
import unicodedata
from pathlib import Path

import pytest

from training.config.schema import load_preset
from training.data.read.named import _download as download
from training.data.read.texts import load

REAL = Path(os.environ.get("KERAS_ATTENTION_DATA") or "/nowhere")
real = pytest.mark.skipif(not REAL.is_dir(), reason="KERAS_ATTENTION_DATA is not set")


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
    for text in loaded.sources[:100]:
        assert unicodedata.is_normalized("NFC", text)


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
