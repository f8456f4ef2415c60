"""The manifest of a folder of token ids, and the texts of dev and test in such a folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from training.command.files import read_json, write_json
from training.data.columns import Form
from training.data.read._files import read_blocks
from training.data.read._pairs import read_split
from training.data.read._sentences import Split, merge_sources
from training.data.read._specs import CorpusError, Spec

FORMAT = 2
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of token ids, and the texts that the token ids come from."""

    pairs: int  # training pairs
    own: int  # training pairs of the data; extra data have the others
    settings: dict[str, Any]  # configuration keys that the corpus decides
    digest: str  # SHA-256 of the text files
    files: dict[str, list[int]]  # size and time of each text file
    data: str = ""  # SPEC of the data
    lines: int = 0  # lines of the text files
    unusable: int = 0  # lines without a pair that are not blank
    left_out: dict[str, int] = field(default_factory=dict)  # lines without a pair, by reason
    bytes: dict[str, int] = field(default_factory=dict)  # sizes of the folder's files
    format: int = FORMAT


def tokenizer_files(folder: Path) -> tuple[Path, Path]:
    """Return the files of the source's and the target's tokenizer in a folder."""
    return folder / "source.tokenizer", folder / "target.tokenizer"


def prepared_files(folder: Path) -> list[Path]:
    """Return the files whose content identifies a folder of token ids."""
    return [folder / MANIFEST, *tokenizer_files(folder)]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest, with the sizes of the folder's files."""
    files = [file for file in sorted(folder.glob("[!.]*")) if file.name != MANIFEST]
    sizes = {file.name: file.stat().st_size for file in files}
    write_json(folder / MANIFEST, asdict(replace(manifest, bytes=sizes)))


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder of token ids.

    Raises CorpusError if the folder has no token ids, or if a file is missing or has another size
    than in the manifest.
    """
    file = folder / MANIFEST
    if not file.is_file():
        raise CorpusError(f"{folder} is not a prepared corpus: it has no {file.name}")
    try:
        manifest = Manifest(**read_json(file))
        right = manifest.format == FORMAT
    except TypeError:  # the manifest has other keys
        right = False
    if not right:
        raise CorpusError(f"{file} expected format {FORMAT}: prepare the corpus anew")
    for name, size in manifest.bytes.items():
        there = folder / name
        if not there.is_file() or there.stat().st_size != size:
            raise CorpusError(f"{there} is missing or damaged: expected {size:,} bytes")
    return manifest


def prepared_texts(folder: Path, split: str) -> Split:
    """Return the sentences of dev or test.

    Raises CorpusError if only token ids exist, or as `read_manifest` does.
    """
    read_manifest(folder)
    file = folder / f"{split}.tsv"
    if split not in ("dev", "test") or not file.is_file():
        there = [name for name in ("dev", "test") if (folder / f"{name}.tsv").is_file()]
        raise CorpusError(f"prepared:{folder} has no texts of {split!r}; it has {', '.join(there)}")
    spec = Spec.of(f"multiref:{file}")
    blocks = read_blocks(spec, form=Form())
    return merge_sources(read_split(spec, blocks, notes=False))
