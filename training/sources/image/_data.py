"""Images and their texts: by name, or from a folder.

A SPEC is `images:PATH` or a name in `_MADE`. PATH is a folder with images and a file `labels.tsv`
with lines `file TAB text`, or `labels.csv` with lines `file,text`. A folder has no splits: it is
read whole, whatever the split. The images of a name are generated on demand.
"""

from __future__ import annotations

import functools
import io
import os
import shlex
from dataclasses import replace
from pathlib import Path

from training.command.progress import print_note
from training.command.visible import visible
from training.data.columns import QUOTED, Quotes, form_of
from training.data.read._files import read_text, unquoted
from training.data.read._pairs import MOST_UNUSABLE, LineCounts
from training.data.read._sentences import Split, number_of, sample
from training.data.read._specs import CorpusError, Spec
from training.data.rules import clean
from training.data.separators import tabs_command
from training.sources.image import _captchas as captchas
from training.sources.image import _digits as digits
from training.sources.kinds import check_data

LABELS = ("labels.tsv", "labels.csv")  # the first existing file is read
_MOST_SHOWN = 32  # letters of a text in a message
_ENDINGS = (".png", ".jpg", ".jpeg")
# The number of examples and the seed of each split.
_MADE = {
    "digits": {"train": (30_000, 1), "dev": (500, 2), "test": (2_000, 3)},
    "captcha": {"train": (20_000, 1), "dev": (500, 2), "test": (2_000, 3)},
}


def load(spec: str, split: str, *, limit: int | None = None, seed: int = 0) -> Split:
    """Read one split of a set of images, as bytes or paths, with their texts and boxes if known.

    At most `limit` images are read: a random sample of a folder, or the first generated images.
    Raises CorpusError if there is no such data set or split, or the folder cannot be read.
    """
    if spec.startswith("images:"):
        return sample(_read_folder(_folder(spec)), limit, seed)
    check_data("image", spec, split)
    count, number = _MADE[spec][split]
    count = min(limit or count, count)
    if spec == "digits":
        return digits.make(count, number, test=split == "test")
    return captchas.make(count, number)


def load_training(spec: str, limit: int = 0, seed: int = 0) -> tuple[Split, Split]:
    """Read the training set, at most `limit` images or with 0 all, and the dev set.

    Of a folder, about 1 in 20 of the images, at least one and at most 1,000, form the dev set. The
    choice depends only on the path of each file within the folder.
    """
    if ":" not in spec:
        return load(spec, "train", limit=limit or None, seed=seed), load(spec, "dev")
    everything, folder = load(spec, "train"), _folder(spec)
    numbers = [number_of(os.path.relpath(path, folder)) for path in everything.sources]
    if len(numbers) < 2:
        raise CorpusError(f"{spec} has too few images to hold out a dev set: {len(numbers)}")
    held_out = [i for i, number in enumerate(numbers) if not number % 20]
    held_out = held_out or [numbers.index(min(numbers))]
    trained = [i for i in range(len(numbers)) if i not in {*held_out}]
    train = sample(everything.select(trained), limit or None, seed)
    return train, replace(everything.select(held_out[:1000]), unusable=0)  # counted in `train`


def _folder(spec: str) -> Path:
    return Path(spec.removeprefix("images:")).expanduser()


def _read_folder(folder: Path) -> Split:
    if not folder.is_dir():
        raise CorpusError(f"{folder} is no folder of images")
    labels = next((folder / name for name in LABELS if (folder / name).is_file()), None)
    if labels is None:
        named = _images(folder)
        images = f"{len(named)} images in {len({path.parent for path in named})} folders"
        others = [f", and {path.name}" for path in folder.glob("*abels.*") if path.is_file()]
        raise CorpusError(
            f"{folder} has no {LABELS[0]}, a line `file TAB text` for each image, which "
            f"docs/guides/images.md shows how to write; it has {images}{''.join(others)}"
        )
    stats = labels.stat(), folder.stat()
    return _read_labels(labels.absolute(), *((each.st_size, each.st_mtime_ns) for each in stats))


def _images(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS}


@functools.lru_cache(1)
def _read_labels(labels: Path, *stamps: tuple[int, int]) -> Split:
    """Read a file of labels, and print what is left out.

    The result is cached until the file or its folder changes, which `stamps` shows.
    """
    folder, split, skipped = labels.parent, Split([], []), LineCounts(Spec(str(labels)))
    content, quotes = read_text(labels), Quotes()
    written = content.encode()
    by_commas = labels.suffix == ".csv"
    quotes.add(written)
    if by_commas or quotes.are_form():
        if not by_commas:
            print_note(f"{labels}: {QUOTED}")
        lines = unquoted(io.BytesIO(written), labels, "," if by_commas else "\t")
        content = b"".join(lines).decode()
    elif doubt := quotes.doubt():
        print_note(f"{labels}: {doubt}")
    # Only "\n" ends a line: other separators, such as U+2028, are part of a text.
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        name, _, text = line.partition("\t")
        path = folder / name
        if not text.strip() or "\t" in text.strip():
            skipped.add(f"write the file, a {'comma' if by_commas else 'tab'}, the text", number)
        elif not path.is_file():
            skipped.add(f"there is no file {path}", number)
        else:
            split.sources.append(path)
            split.references.append([clean(text)])
    _print_ambiguous(labels, split)
    if split.sources and (others := _images(folder).difference(split.sources)):
        told = f"{labels} has no text for {len(others)} images of its folder"
        print_note(f"{told}, for example {min(others)}")
    if not (unusable := skipped.unusable):
        return split
    reason, first = min(skipped.first.items(), key=lambda item: item[1])
    total = len(split.sources) + unusable
    told = f"{labels}, line {first}: {reason}. {unusable} of {total} lines have no image"
    if not split.sources or unusable > max(1, MOST_UNUSABLE * total):
        raise CorpusError(told + _separator_hint(labels, written))
    print_note(f"{told} and are left out")
    return replace(split, unusable=unusable)


def _print_ambiguous(labels: Path, split: Split) -> None:
    """Print how many images are listed with two texts or more."""
    texts: dict[str, dict[str, None]] = {}
    for path, (text,) in zip(split.sources, split.references, strict=True):
        texts.setdefault(os.path.normpath(path), {})[text] = None
    if several := [path for path, each in texts.items() if len(each) > 1]:
        first, second, *_ = (visible(text, _MOST_SHOWN) for text in texts[several[0]])
        images = "1 image has" if len(several) == 1 else f"{len(several):,} images have"
        print_note(
            f"{labels}: {images} two texts or more, and training uses all of them, for example "
            f"{several[0]}: {first} and {second}"
        )


def _separator_hint(labels: Path, content: bytes) -> str:
    """Return the end of an error if a file of labels does not have the separator of its name."""
    tabs = labels.with_suffix(".tsv")
    if labels != tabs and content.count(b"\t") >= content.strip().count(b"\n") + 1:
        move = f"mv {shlex.quote(str(labels))} {shlex.quote(str(tabs))}"
        return f". They have tabs instead of commas. To rename it: {move}"
    separator = form_of([content], str(labels)).separator
    if not separator or (labels != tabs and separator == "commas"):
        return ""
    if labels != tabs:
        command = tabs_command(separator, str(labels), output=str(tabs))
        return f". They have {separator} instead of commas. To write tabs: {command}"
    new = str(labels.with_name("new.tsv"))
    command = tabs_command(separator, str(labels), output=new)
    move = shlex.join(["mv", new, str(tabs)])
    return f". They have {separator} instead of tabs. To write tabs: {command} && {move}"
