"""The arguments of the commands that begin a run: which preset, data and settings it has."""

from __future__ import annotations

import argparse
import dataclasses
import re
import textwrap
from pathlib import Path

from training.command.errors import UsageError
from training.command.options import Parser, add_options
from training.config import schema
from training.config.schema import Config
from training.data.read import texts as corpus
from training.sources.kinds import SOURCE_KINDS

_SPECS = """Ways to name data (DATA):
{specs}
Files may be compressed (.gz, .zst). Corpora are searched in $KERAS_ATTENTION_DATA, then in
~/.cache/keras-attention, and downloaded there."""


def add_configuration(parser: Parser) -> None:
    """Add the options that `configuration` reads. The help lists SPECs and keys."""
    presets = f"preset to train: {', '.join(schema.preset_names())}; or a file of your own, "
    presets += "NAME.toml; python -m training.presets lists them with figures"
    parser.add_argument("--preset", metavar="NAME", help=presets)
    data = "training data, instead of the preset's; without --preset, its size and traits choose "
    data += "the settings"
    parser.add_argument("--data", metavar="DATA", help=data)
    for key in dataclasses.fields(Config):
        if key.name in ("dev", "test"):
            parser.add_argument(f"--{key.name}", metavar="DATA", help=key.metadata["meaning"])
    add_options(parser, "--set")
    keys = f"Keys of --set, with their defaults:\n{schema.keys_help()}"
    listed = "list the keys of --set, and exit"
    parser.add_argument("--help-settings", action="version", version=keys, help=listed)
    names = textwrap.wrap(f"a corpus: {', '.join(corpus.NAMES)}", 74, break_on_hyphens=False)
    specs = {"NAME": ("\n" + " " * 26).join(names)}
    for kind in SOURCE_KINDS.values():
        specs |= kind.specs
    lines = "\n".join(f"  {spec:<23} {meaning}" for spec, meaning in specs.items())
    parser.epilog = _SPECS.format(specs=lines)


def default_output(options: argparse.Namespace) -> Path:
    """Return the default run directory: `runs/` and the name of the preset or the data."""
    if not (name := options.preset or options.data):
        raise UsageError(
            "Nothing to train on. Give --preset NAME or --data DATA, for example --data tsv:my.tsv"
        )
    path = Path(name.partition(":")[2].partition(",")[0] or name)
    if path.name == "config.toml":  # the configuration of another run
        path = path.absolute().parent
    return Path("runs") / re.sub(r"(?<=.)(\.(toml|tsv|csv|txt))?(\.(gz|zst))?$", "", path.name)
