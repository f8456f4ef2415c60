"""The configuration of a training: chosen for the data, with the settings of the user."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from training.command.errors import ConfigError, UsageError
from training.command.progress import print_choice
from training.config import schema
from training.config._settle import settled
from training.config.schema import Config, load_preset, override, read_settings
from training.data.read import texts as corpus
from training.data.read._specs import Spec
from training.data.read.texts import Texts, held_out
from training.data.rules import ALPHABETS
from training.presets._recognise import LARGEST_ALPHABET, Traits, recognise
from training.sources.kinds import SOURCE_KINDS, check_data

FEWEST = 200  # pairs; with fewer pairs, a small alphabet may be chance
FEWEST_PRONOUNCED = 60  # words with their phones
# pairs; with fewer, symbols that follow their sources train as g2p-low does with 800
FEW_PRONOUNCED = 1_500
MOST_WORDS = 3  # words of a text that is a string, not a sentence
MOST_READ = 60  # letters of a source that is read letter by letter
MOST_SPELLED = 200  # letters of a target that is spelled, and of a source whose order is known
_USES = 5  # uses of a letter of a large alphabet, if targets follow their sources
_SPELLED = ["target_tokenizer=letters", "metric=characters", "label_smoothing=0.1"]
_FEW = ["epochs=100", "batch_size=16", "keep_epoch=best_score", "learning_rate=2e-3"]
_BY = {"letters": ", letter by letter", "sentencepiece": ""}


class Chosen(NamedTuple):
    """How to train on the pairs of a file."""

    kind: str  # "strings" or "sentences"
    preset: str | None  # None if the number of pairs decides
    settings: list[str]


def choose(traits: Traits, count: int, target_tokenizer: str = "") -> Chosen:
    """Choose how to train on `count` pairs with these traits.

    Args:
        traits: measured on a sample of the pairs.
        count: number of pairs.
        target_tokenizer: the tokenizer that the user sets; "" if none.

    The rules are the table in docs/choices.md.
    """
    source, target = traits[:2]
    asked, known = target_tokenizer in ALPHABETS, traits.reordered is not None
    symbols = traits.symbols and not asked
    readable = source.readable and source.letters <= (MOST_SPELLED if known else MOST_READ)
    few = target.alphabet <= LARGEST_ALPHABET or (target.uses >= _USES and traits.follows)
    short = target.words <= MOST_WORDS or (known and source.words <= MOST_WORDS)
    spells = few and target.letters <= MOST_SPELLED and (short or traits.follows or traits.copies)
    lengths = [
        f"max_{side}_length={min(texts.longest + 10, MOST_SPELLED + 100)}"
        for side, texts in (("source", source), ("target", target))
        if texts.longest > MOST_READ and not (symbols and side == "target")
    ]
    small = FEWEST_PRONOUNCED <= count < FEWEST
    if small and traits.phones and not asked and source.mean <= MOST_WORDS:
        return Chosen("strings", "g2p-low", lengths)
    fits = (known or source.mean <= MOST_WORDS) if symbols else (spells or asked)
    if not (fits and readable and count >= FEWEST):
        settings = [*_SPELLED, *lengths] if asked else []
        if symbols and count >= FEWEST:
            settings = ["target_tokenizer=symbols", "metric=symbols"]
        return Chosen("sentences", None, settings)
    pronounced = symbols and traits.follows
    if count < FEW_PRONOUNCED and pronounced:
        preset, settings = "g2p-low", []
    elif count < 3_000:
        preset, settings = "g2p-medium", _FEW
    elif count < 20_000:
        preset, settings = "g2p-medium", [] if pronounced else ["epochs=40"]
    else:
        preset, settings = "g2p-high", [] if pronounced else ["epochs=30"]
    settings = [*([] if symbols else _SPELLED), *settings]
    if traits.explained_by_whole_words:
        settings = [*settings, "source_tokenizer=symbols"]
    if not traits.follows:
        settings = [*settings, "attention=additive"]  # each token may depend on any letter
    if traits.doubtful:
        settings = [*settings, "other_attention=hard_monotonic"]
    return Chosen("strings", preset, [*settings, *lengths])


# keys that decide the weights and the tokens of a model, which a run that starts from another keeps
OF_MODEL = (
    *("attention", "attention_units", "attention_heads", "attention_options", "distribution"),
    *("encoder", "bidirectional", "encoder_layers", "encoder_units"),
    *("decoder", "decoder_layers", "decoder_units", "embedding_size", "order", "input_feeding"),
    *("gate", "readout", "readout_units", "tie_embeddings", "copy"),
    *("source_tokenizer", "target_tokenizer", "source_vocab_size", "target_vocab_size"),
    *("image_height", "image_width", "image_channels", "convolutions"),
)


def configuration(options: argparse.Namespace) -> Config:
    """Return the configuration for these options, with absolute paths of files.

    Without a preset, the number of pairs and their traits decide the settings. Raises ConfigError
    for an unknown preset or key, or a value that does not fit. Raises CorpusError if there is no
    preset and the corpus cannot be read.
    """
    try:
        values = asked = read_settings(
            options.settings
        )  # report a wrong setting before data are read
    except ConfigError as error:
        raise UsageError(str(error)) from None
    init = getattr(options, "init", None)
    if init and not options.preset:  # the model of the run
        begun = schema.load_config(init / "config.toml")
        values = {**{key: getattr(begun, key) for key in OF_MODEL if begun.has_key(key)}, **asked}
    if options.preset:
        config = load_preset(options.preset)
    elif options.data in schema.preset_names():
        config = load_preset(options.data)
    elif options.data and (file := own_preset(options.data, values)):
        config = schema.load_config(file)
    elif options.data:
        _check_data("text", (options.data, options.dev, options.test))
        config = _own_texts(options.data, values)
    else:
        raise UsageError(
            "Nothing to train on. Give --preset NAME or --data DATA, for example --data tsv:my.tsv"
        )
    if own := corpus.manifest_of(options.data or config.data):
        values = {**values, **own.settings, **asked}
    if init and not options.preset and begun.source != config.source:
        wanted = f"data of its own kind, {begun.source}"
        raise ConfigError.expected(f"--init {init}", wanted, config.source)
    try:
        config, yielded = settled(config, values)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if yielded:
        text = " ".join(f"{key}={json.dumps(value)}" for key, value in yielded.items())
        print_choice("fitted", f"to your settings: {text}")
    if config.source != "text" and (options.dev or options.test):
        raise UsageError(
            "--dev and --test work only for texts. The trainer sets aside a fixed part of these "
            f"{SOURCE_KINDS[config.source].unit}. To score other data: python -m training.evaluate "
            "--run DIR --data DATA"
        )
    # do not average the first epochs of a short training
    if "epochs" in values and "average_epochs" not in values:
        most = min(config.average_epochs, config.epochs // 3)
        config = override(config, [f"average_epochs={most if most > 1 else 0}"])
    if not options.preset and (options.data or "").startswith("images:"):
        from training.sources.image import (  # imports NumPy: late, so that --help is fast
            _data as data,
        )
        from training.sources.image import _size as size

        images = data.load(options.data, "train")
        config = size.own_images(dataclasses.replace(config, data=options.data), images, values)
    specs = ((name, getattr(options, name)) for name in ("data", "dev", "test"))
    config = override(config, [f"{name}={value}" for name, value in specs if value])
    paths = {name: Spec.of(getattr(config, name)).absolute() for name in ("data", "dev", "test")}
    extra = [Spec.of(spec).absolute() for spec in config.extra_data.split()]
    if spaced := [spec for spec in extra if len(spec.split()) > 1]:
        raise ConfigError(f"extra_data needs paths without spaces, but one is {spaced[0]}")
    paths["extra_data"] = " ".join(extra)
    _check_data(config.source, (paths["data"], paths["dev"], paths["test"], *extra))
    config = override(config, [f"{name}={path}" for name, path in paths.items() if path])
    if config.source == "text":
        held_out(Texts.of(config), 0)
    return config


def _check_data(source: str, specs: Iterable[str | None]) -> None:
    for spec in specs:
        if spec and not re.fullmatch(r"[-+.\d]+", spec):  # a number is a share to hold out
            check_data(source, spec)


def _own_texts(spec: str, own: Mapping[str, Any]) -> Config:
    """Return the settings for texts, chosen by their traits (if readable) and their number.

    Print the recognised traits, as the head of the block that `training.runs._start` continues. The
    block lists no setting that the user's settings, `own`, replace.
    """
    chosen, rows = Chosen("sentences", None, []), []
    if own_corpus := corpus.manifest_of(spec):
        total, own = own_corpus.pairs, {**own, **own_corpus.settings}
    else:
        total, pairs = corpus.sample_pairs(spec)
        traits = recognise(pairs)
        chosen = choose(traits, total, own.get("target_tokenizer", ""))
        rows = list(traits.rows())
    if chosen.preset:
        config, file = load_preset(chosen.preset), f"training/presets/{chosen.preset}.toml"
    else:
        config, file = schema.own_data_preset(total)
    settings = chosen.settings
    if "attention" in own:  # nothing is left to try
        settings = [each for each in settings if not each.startswith("other_attention=")]
    config = override(config, settings)
    print(f"{spec}: {total:,} pairs (to change a choice, add the option on the right)")
    for row in rows:
        print_choice(*row)
    tokens = own.get("target_tokenizer", config.target_tokenizer)
    kind = f"treated as {chosen.kind}{_BY.get(tokens, f' to {tokens}')}"
    print_choice("kind", f"{kind}; settings of {file}", "--preset NAME")
    shown = [setting for setting in settings if setting.partition("=")[0] not in own]
    print_choice("", "".join(f"--set {setting} " for setting in shown))
    return config


def own_preset(spec: str, own: Mapping[str, Any]) -> str | None:
    """Return the settings file for own data if the number of pairs does not decide; else None.

    Images with `attention=hard_monotonic` in the user's settings, `own`, are read in order. Their
    settings file is `lines.toml`, for lines of text.
    """
    form, colon, _ = spec.partition(":")
    forms = [form for kind in SOURCE_KINDS.values() if not kind.tokens for form in kind.forms]
    in_order = form == "images" and own.get("attention") == "hard_monotonic"
    name = "lines" if in_order else form
    return str(schema.PRESETS / "own" / f"{name}.toml") if colon and form in forms else None
