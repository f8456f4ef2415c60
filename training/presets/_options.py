"""The configuration of a training: chosen for the data, with the settings of the user."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from training.command.errors import ConfigError, UsageError
from training.command.progress import print_choice
from training.config import schema
from training.config._settle import settled
from training.config.schema import Config, load_preset, override, read_settings
from training.data.read import texts as corpus
from training.data.read._specs import Spec
from training.data.read.texts import Texts, held_out
from training.presets._choose import Chosen, choose
from training.presets._recognise import recognise
from training.sources.kinds import SOURCE_KINDS, check_data

_BY = {"letters": ", letter by letter", "sentencepiece": ""}

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
