"""The options that say what is trained on what, and the configuration that they make."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.command.errors import ConfigError, UsageError
from training.command.options import Parser, add_options
from training.config.schema import (
    PRESETS,
    Config,
    keys_help,
    load_config,
    load_preset,
    override,
    own_data_preset,
    preset_names,
)
from training.data import corpus
from training.data.corpus import is_prepared
from training.sources.kinds import KINDS

FEWEST = 200  # pairs: in fewer, a small alphabet may be chance
MOST_LETTERS = 40  # of a target
MOST_SOURCE_LETTERS = 60  # as the settings for short strings read
MOST_WORDS = 3
LARGEST_ALPHABET = 250
LEAST_USES = 2  # of a letter of a larger alphabet, on average
NEARLY_ALL = 0.95
# Scripts without spaces: Thai, Lao, Burmese, Khmer, kana, Han.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_UNSPACED_WORD = 5  # letters
_LETTERS = [
    "target_tokenizer=letters",
    "metric=characters",
    "attention=additive",  # phones follow the order of the letters; letters may not
    "label_smoothing=0.1",
]


class Survey(NamedTuple):
    """The pairs of a file."""

    pairs: int  # how many there are
    # preset and settings by which they are learned as short strings, None where they are not
    strings: tuple[str, list[str]] | None
    short_targets: bool = False  # whether targets are short strings, of sources that are not


def survey(pairs: Iterable[tuple[str, str]], total: int | None = None) -> Survey:
    """Look whether pairs, all or a sample of `total`, are learned letter by letter.

    That is decided by the targets: they are symbols of a small alphabet between spaces, as phones
    are, or have few words and letters, of a small alphabet. Sources are read letter by letter
    where they are short; those of phones have few words, too.
    """
    sources, targets = zip(*pairs, strict=True)
    count = len(sources) if total is None else total
    if count < FEWEST:
        return Survey(count, None)
    preset = f"g2p-{'low' if count < 3_000 else 'medium' if count < 20_000 else 'high'}"
    letters, uses = _alphabet(sources)
    readable = letters <= LARGEST_ALPHABET or uses >= LEAST_USES
    if readable and _are_symbols(targets) and _are_short(sources, MOST_LETTERS, MOST_WORDS):
        return Survey(count, (preset, []))
    few_letters = _alphabet(targets)[0] <= LARGEST_ALPHABET
    if not (few_letters and _are_short(targets, MOST_LETTERS, MOST_WORDS)):
        return Survey(count, None)
    if not (readable and _are_short(sources, MOST_SOURCE_LETTERS)):
        return Survey(count, None, short_targets=True)
    if preset == "g2p-low":
        return Survey(count, ("g2p-medium", [*_LETTERS, "epochs=150", "keep_by=score"]))
    epochs = 40 if preset == "g2p-medium" else 30
    return Survey(count, (preset, [*_LETTERS, f"epochs={epochs}"]))


def _are_short(texts: Sequence[str], letters: int, words: float = math.inf) -> bool:
    """Whether nearly all texts have at most so many letters and words."""
    short = sum(
        len(text) <= letters
        and len(text.split()) + len(_UNSPACED.findall(text)) // _UNSPACED_WORD <= words
        for text in texts
    )
    return short >= NEARLY_ALL * len(texts)


def _are_symbols(texts: Sequence[str]) -> bool:
    """Whether there are few symbols, and several in a text."""
    symbols = list(itertools.chain.from_iterable(map(str.split, texts)))
    return len(set(symbols)) <= LARGEST_ALPHABET and len(symbols) >= 2 * len(texts)


def _alphabet(texts: Sequence[str]) -> tuple[int, float]:
    """Return how many letters texts have, and how often a letter is used on average."""
    letters = Counter(unicodedata.normalize("NFD", "".join(texts)))
    return len(letters), letters.total() / max(1, len(letters))


SPECS = """SPECs name data:
{specs}
Files may be compressed (.gz, .zst). Corpora are looked for in $KERAS_ATTENTION_DATA, then in
~/.cache/keras-attention, and downloaded there."""


def add_configuration(parser: Parser) -> None:
    """Add the options that `configuration` reads, and what SPECs and keys there are to the help."""
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help=f"preset to train: {', '.join(preset_names())}; or a file of your own, NAME.toml; "
        "python -m training.presets says more",
    )
    parser.add_argument(
        "--data",
        metavar="SPEC",
        help="training data, in place of the preset's; without --preset its size chooses the "
        "settings",
    )
    for key in dataclasses.fields(Config):
        if key.name in ("dev", "test"):
            parser.add_argument(f"--{key.name}", metavar="SPEC", help=key.metadata["meaning"])
    add_options(parser, "--set")
    parser.add_argument(
        "--help-settings",
        action="version",
        version=f"Keys of --set, with their defaults:\n{keys_help()}",
        help="list the keys of --set, and exit",
    )
    names = textwrap.wrap(f"a corpus: {', '.join(corpus.NAMES)}", 74, break_on_hyphens=False)
    specs = {"NAME": ("\n" + " " * 26).join(names)}
    for kind in KINDS.values():
        specs |= kind.specs
    lines = "\n".join(f"  {spec:<23} {meaning}" for spec, meaning in specs.items())
    parser.epilog = SPECS.format(specs=lines)


def configuration(options: argparse.Namespace) -> Config:
    """Return the configuration asked for; files are named by their absolute paths.

    Without a preset the corpus decides: its number of pairs, and what they are. Raises ConfigError
    for an unknown preset or key, or a value that does not fit, and CorpusError where there is no
    preset and the corpus cannot be read.
    """
    if options.preset:
        config = load_preset(options.preset)
    elif options.data in preset_names():
        config = load_preset(options.data)
    elif options.data and (file := own_preset(options.data)):
        config = load_config(file)
    elif options.data:
        config = _own_texts(options.data)
    else:
        raise UsageError("the command expected --preset or --data. Received: neither")
    if is_prepared(options.data or config.data):
        settings = _prepared(corpus.absolute(options.data or config.data)).settings
        config = override(config, [f"{key}={value}" for key, value in settings.items()])
    try:
        config = override(config, options.settings)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    specs = ((name, getattr(options, name)) for name in ("data", "dev", "test"))
    config = override(config, [f"{name}={value}" for name, value in specs if value])
    paths = {name: corpus.absolute(getattr(config, name)) for name in ("data", "dev", "test")}
    extra = [corpus.absolute(spec) for spec in config.extra_data.split()]
    if spaced := [spec for spec in extra if len(spec.split()) > 1]:
        raise ConfigError(f"extra_data expected paths without spaces. Received: {spaced[0]}")
    paths["extra_data"] = " ".join(extra)
    for spec in (paths["data"], paths["dev"], paths["test"], *extra):
        corpus.check(spec)
    return override(config, [f"{name}={path}" for name, path in paths.items() if path])


def _own_texts(spec: str) -> Config:
    """Return the settings for texts: by what they are where they can be read, and their number."""
    if is_prepared(spec):
        counted = Survey(_prepared(spec).count, None)
    else:
        total, pairs = corpus.sample_pairs(spec)
        counted = survey(pairs, total)
    if counted.strings:
        preset, settings = counted.strings
        kind, file = "pairs of short strings", f"training/presets/{preset}.toml"
        config = override(load_preset(preset), settings)
    else:
        kind, (config, file) = "pairs", own_data_preset(counted.pairs)
    print(f"{spec}: {counted.pairs:,} {kind}, so with the settings of {file}", flush=True)
    if counted.short_targets:
        print("Targets are short strings: --set target_tokenizer=letters would spell them.")
    return config


def default_output(options: argparse.Namespace) -> Path:
    """Return the run directory where none is named: `runs/` and the name of preset or data."""
    name = options.preset or options.data
    path = Path(name.partition(":")[2].partition(",")[0] or name)
    if path.name == "config.toml":  # another run's
        path = path.absolute().parent
    return Path("runs") / re.sub(r"(?<=.)(\.(toml|tsv|csv|txt))?(\.(gz|zst))?$", "", path.name)


def own_preset(spec: str) -> str | None:
    """Return the file of settings for own data whose number of pairs does not decide."""
    form, colon, _ = spec.partition(":")
    forms = [form for kind in KINDS.values() if not kind.tokens for form in kind.forms]
    return str(PRESETS / "own" / f"{form}.toml") if colon and form in forms else None


def _prepared(spec: str) -> Any:
    from training.data.prepared import Prepared  # with NumPy, for which no --help waits

    return Prepared(spec)
