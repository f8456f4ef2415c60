"""Make a run directory ready for training elsewhere: python -m training.prepare --preset NAME.

It gets the configuration, the tokenizers and the token ids of all pairs, from which
`training.train_arrays` trains where there is no TensorFlow.
"""

from __future__ import annotations

import training.quiet  # noqa: F401

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training import corpus
from training.checkpoints import write_text
from training.cli import add_configuration, configuration, main_guard
from training.config import Config
from training.pipeline import tokenize_pairs
from training.run import SIDES, RunError, load_tokenizers
from training.text import Tokenizer, train_tokenizer
from training.train_arrays import TOKENS


def prepare(config: Config, output: Path) -> dict:
    """Make a run directory with all that training needs.

    Returns:
        Numbers of pairs, `train` and `dev`.

    Raises:
        CorpusError: if the data cannot be read.
        RunError: if the directory cannot be used.
    """
    data, dev = corpus.load_training(config.data, config.train_limit, config.seed)
    make_output(output, config)
    tokenizers = make_tokenizers(config, output, data.pairs())
    sizes = (f"{side}_vocab_size" for side in SIDES)
    arrays = dict(zip(sizes, (made.vocab_size for made in tokenizers), strict=True))
    for prefix, split in (("", data), ("dev_", dev)):
        for side, ids in zip(SIDES, tokenize_pairs(split.pairs(), tokenizers), strict=True):
            arrays |= {f"{prefix}{side}": ids.values[:-1], f"{prefix}{side}_lengths": ids.lengths}
    np.savez_compressed(output / TOKENS, **arrays)
    return {"train": len(data.pairs()), "dev": len(dev.pairs())}


def make_output(output: Path, config: Config) -> None:
    """Make the run directory; a run that is there already may only be gone on with.

    Raises:
        RunError: if there is one, or the directory cannot be written to.
    """
    if (output / "config.toml").exists():
        raise RunError(
            f"{output} holds a run already: go on with it by training.train --resume, or choose "
            "another --output"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
        write_text(output / "history.json", "[]\n")
        config.save(output / "config.toml")
    except OSError as error:
        raise RunError(f"cannot write to {output}: {error.strerror}") from error


def make_tokenizers(
    config: Config,
    output: Path,
    pairs: Sequence[tuple[str, str]],
    init: Path | None = None,
) -> tuple[Tokenizer, Tokenizer]:
    """Return the run's tokenizers: those there, or those of `init`, or new ones, which are kept."""
    files = [output / f"{side}.tokenizer" for side in SIDES]
    if all(file.is_file() for file in files):
        return load_tokenizers(output)
    if init is not None:
        made = load_tokenizers(init)
    else:
        print("Training the tokenizers …", flush=True)
        made = tuple(
            train_tokenizer(
                getattr(config, f"{side}_tokenizer"),
                lines,
                getattr(config, f"{side}_vocab_size"),
                **_normalization(config, side),
            )
            for side, lines in zip(SIDES, zip(*pairs, strict=True), strict=True)
        )
    for tokenizer, file in zip(made, files, strict=True):
        aside = file.with_suffix(".writing")
        tokenizer.save(aside)
        aside.replace(file)
    return made


def _normalization(config: Config, side: str) -> dict:
    if getattr(config, f"{side}_tokenizer") != "sentencepiece":
        return {}
    # Whatever way a source is typed, it is read alike; a target keeps its own characters.
    return {"normalization": "nmt_nfkc" if side == "source" else "identity"}


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m training.prepare",
        description="Make a run directory that training.train_arrays trains from, on JAX or "
        "PyTorch and without TensorFlow. JAX compiles the step anew for each length: with it, add "
        "--set length_multiple=8 or so.",
    )
    add_configuration(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: runs/NAME")
    options = parser.parse_args(arguments)
    output = options.output or Path("runs") / options.preset
    print(json.dumps({"run": str(output), **prepare(configuration(options), output)}))


if __name__ == "__main__":
    main_guard(main)
