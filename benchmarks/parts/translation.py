"""Untrained models whose translations have a length that is asked for."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from parts.batches import SPECIAL


def untrained_run(folder: Path, options: argparse.Namespace) -> Any:
    """A run of an untrained model that never ends a translation."""
    import keras

    from training.config.schema import Config
    from training.data.tokens.tokenizers import VocabularyTokenizer
    from training.model.seq2seq import build_seq2seq
    from training.runs.run import Run
    from training.sources.text._source import TextSource

    keras.utils.set_random_seed(options.seed)
    config = Config(
        encoder="lstm",
        decoder="lstm",
        encoder_units=options.units // 2,
        decoder_units=options.units,
        embedding_size=options.units // 2,
        attention_units=options.units,
        readout_units=options.units,
    )
    model = build_seq2seq(config, options.vocabulary, options.vocabulary)
    bias = model.get_layer("output").bias
    bias.assign(np.where(np.arange(options.vocabulary) < SPECIAL, -1e4, 0.0))  # never the end
    source, target = (VocabularyTokenizer("symbols", words(options)) for _ in range(2))
    return Run(folder, config, TextSource(source), target, model)


def forced_translation(run: Any, length: int, **settings: Any) -> tuple[Any, Callable]:
    """Return the export's module of a run, and its function to translations of so many tokens."""
    import tensorflow as tf

    from serving.export import _texts as modules
    from training.decode.settings import SearchSettings

    exported = modules.Exported([run], SearchSettings(**{"num_results": 5, **settings}))
    text = tf.TensorSpec([None], tf.string, name="text")
    forced = functools.partial(modules.search, max_length=length)
    with mock.patch.object(modules, "search", forced):  # while it is traced
        translate = tf.function(exported.translate, autograph=False).get_concrete_function(text)
    return exported.module, translate


def export_forced(run: Any, length: int, folder: Path, weights: str) -> None:
    """Write an ONNX export of a run whose translations have so many tokens."""
    from serving.portable.write._encoders import TextEncoder
    from serving.portable.write._graphs import write_folder
    from serving.portable.write._settings import ExportSettings

    def limits(encoder: Any, g: Any, source: Any) -> Any:
        return g.expand(float(length), g.size(source, 0), 1)

    settings = ExportSettings(num_results=1, weights=weights)
    folder.mkdir()
    with mock.patch.object(TextEncoder, "limits", limits):
        card = {"settings": settings.written(run, "onnx"), "versions": {}}
        write_folder([run], folder, card, settings)


def words(options: argparse.Namespace) -> list[str]:
    """The vocabulary without special tokens."""
    return [f"w{number}" for number in range(options.vocabulary - SPECIAL)]
