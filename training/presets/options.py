"""The options that say what is trained on what, and the configuration that they make."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from training.command.errors import ConfigError, UsageError
from training.command.options import add_options
from training.command.parser import Parser
from training.config.load import (
    PRESETS,
    keys_help,
    load_config,
    load_preset,
    override,
    own_data_preset,
    preset_names,
)
from training.config.schema import Config
from training.data import corpus
from training.data.corpus import is_prepared
from training.presets.strings import Survey, survey
from training.sources.kinds import KINDS

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
    parser.add_argument(
        "--dev",
        metavar="SPEC",
        help="development data: a SPEC, or the share of --data's lines to hold out, such as 0.05; "
        "default: the corpus's, or some 300 of the lines, 1,000 of many",
    )
    parser.add_argument(
        "--test", metavar="SPEC", help="test data of training.evaluate, as --dev; default: none"
    )
    add_options(parser, "--set")
    parser.add_argument(
        "--help-settings", action=_HelpSettings, help="list the keys of --set, and exit"
    )
    parser.end_of_help = lambda: SPECS.format(specs=_specs())


class _HelpSettings(argparse.Action):
    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, default=argparse.SUPPRESS, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        print(f"Keys of --set, with their defaults:\n{keys_help()}")
        parser.exit()


def configuration(options: argparse.Namespace, pairs: int | None = None) -> Config:
    """Return the configuration asked for; files are named by their absolute paths.

    Without a preset `pairs` of the corpus decide, which are counted if they are not known.

    Raises:
        ConfigError: an unknown preset or key, or a value that does not fit.
        CorpusError: there is no preset, and the corpus cannot be read.
    """
    if options.preset:
        config = load_preset(options.preset)
    elif options.data in preset_names():
        config = load_preset(options.data)
    elif options.data and (file := own_preset(options.data)):
        config = load_config(file)
    elif options.data:
        config = _own_texts(options.data, pairs)
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
    return override(config, [f"{name}={path}" for name, path in paths.items() if path])


def _own_texts(spec: str, count: int | None) -> Config:
    """Return the settings for texts: by what they are where they can be read, and their number."""
    kind, counted = "pairs", Survey(count or 0, None)
    if count is None and is_prepared(spec):
        counted = Survey(_prepared(spec).count, None)
    elif count is None:
        total, pairs = corpus.sample_pairs(spec)
        counted = survey(pairs, total)
    config, file = own_data_preset(counted.pairs)
    if counted.strings:
        kind, file = "pairs of short strings", f"training/presets/{counted.strings.preset}.toml"
        config = override(load_preset(counted.strings.preset), counted.strings.settings)
    if counted.pairs:
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
    ending = path.suffix if path.suffix in (".toml", ".tsv", ".gz", ".zst", ".txt") else ""
    return Path("runs") / path.name.removesuffix(ending).removesuffix(".tsv")


def own_preset(spec: str) -> str | None:
    """Return the file of settings for own data whose number of pairs does not decide."""
    form, colon, _ = spec.partition(":")
    names = (kind.own for kind in KINDS.values() if colon and form in kind.forms)
    return next((str(PRESETS / "own" / f"{name}.toml") for name in names if name), None)


def _specs() -> str:
    """List the forms of SPECs, for `--help`."""
    names = textwrap.wrap(f"a corpus: {', '.join(corpus.NAMES)}", 74, break_on_hyphens=False)
    specs = {"NAME": ("\n" + " " * 26).join(names)}
    for kind in KINDS.values():
        specs |= kind.specs
    return "\n".join(f"  {spec:<23} {meaning}" for spec, meaning in specs.items())


def _prepared(spec: str) -> Any:
    from training.data.prepared import Prepared  # with NumPy, for which no --help waits

    return Prepared(spec)
