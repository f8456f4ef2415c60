"""Prints the choices of a run before training, each with the option that changes it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from training.command.progress import print_choice
from training.config.schema import Config
from training.data.rules import most_tokens
from training.data.tokens.pieces import SENTENCEPIECE
from training.data.tokens.store import END_ID
from training.data.tokens.tokenizers import ALPHABETS, Tokenizer
from training.runs._origin import Origin
from training.runs.files import SIDES
from training.sources._source import Source
from training.sources.kinds import SOURCE_KINDS

OFTEN = 25  # epochs after which most trainings on strings stop, see docs/results/choices.md
SHARE = 0.99  # share of the longer pairs whose targets fit without the constant


def fitting_bound(source: np.ndarray, target: np.ndarray, spelled: bool = False) -> str:
    """Return the value of the key `max_answer` that allows outputs as long as the targets.

    The value is `FACTORx+CONSTANT`. The factor is large enough for SHARE of the pairs whose source
    is at least of median length. The constant adds the tokens that the other pairs need beyond
    that, a tenth of the longest target, and 10.

    Words are so short that an answer could repeat itself twice within this bound. So if sources are
    spelled, the factor is a multiple of 0.05 rather than a whole number, and the constant adds a
    twentieth of the longest target, and 2 (one of them for the end token).

    Args:
        source: number of tokens of each source, `(N,)`, at least 1.
        target: number of tokens of each target, `(N,)`.
        spelled: whether sources are split into letters.
    """
    source, target = source.astype(np.int64), target.astype(np.int64)
    longer = source >= np.median(source)
    step = 0.05 if spelled else 1
    ratio = np.quantile(target[longer] / source[longer], SHARE)
    factor = max(1, round(step * math.ceil(ratio / step - 1e-9), 2))
    lacking = max(0, int((target - most_tokens(source, (factor, 0))).max()))
    more = math.ceil(target.max() / 20) + 2 if spelled else math.ceil(target.max() / 10) + 10
    return f"{factor:g}x+{lacking + more}"


def print_choices(
    config: Config, source: Source, target: Tokenizer | None, origin: Origin, chosen: bool
) -> None:
    """Print the choices of a new run; `chosen`: whether its tokenizers were trained for it."""
    units = SOURCE_KINDS[config.source].unit
    left = f", {origin.dropped:,} left out as too long or empty" if origin.dropped else ""
    left += f", {origin.unusable:,} lines without a pair left out" if origin.unusable else ""
    texts = SOURCE_KINDS[config.source].tokens
    longest = f"--set max_{'source' if texts else 'target'}_length=N" if target else ""
    print_choice("training", f"{origin.train:,} {units}{left}", longest)
    dev = f"{origin.dev:,} {units}, not trained on"
    print_choice("dev set", dev, "--dev SHARE" if texts else "")
    for side, tokenizer in zip(SIDES, (getattr(source, "tokenizer", None), target), strict=True):
        if tokenizer is not None:
            way_out = f"--set {side}_tokenizer=KIND" if chosen else ""
            print_choice(side, _vocabulary(tokenizer), way_out)
            if side == "target":
                print_choice(
                    "", _said(tokenizer, config.copy), way_out and "--set target_tokenizer=letters"
                )
    for row in _settings(config):
        print_choice(*row)


def _vocabulary(tokenizer: Tokenizer) -> str:
    kind = "subwords" if tokenizer.kind == SENTENCEPIECE else tokenizer.kind
    return f"{kind}, {tokenizer.vocab_size:,} tokens in all"


def _said(tokenizer: Tokenizer, copies: bool) -> str:
    """Return a warning for a closed vocabulary: other words cannot be output; else ""."""
    if tokenizer.kind in (SENTENCEPIECE, *ALPHABETS) or copies:
        return ""
    words = (
        f"the model can output only these {tokenizer.vocab_size - END_ID - 1:,} {tokenizer.kind}"
    )
    return f"{words}, and no other number or name"


def _settings(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield rows: a name, the choice, and the option that changes it."""
    attention, way_out = config.attention.replace("_", " "), "--set attention=NAME"
    if SOURCE_KINDS[config.source].tokens and (other := config.other_attention):
        attention += f" or {other.replace('_', ' ')}: both are tried for two epochs, because the "
        attention += "data do not decide. An attention that you set is not tried"
    yield "attention", attention, way_out
    if config.target == "text":
        if SOURCE_KINDS[config.source].tokens:
            factor, more = config.bound
            answers = f"at most {factor} x the source's tokens + {more}"
            yield "answers", answers, f"--set max_answer={config.max_answer}"
        else:
            most = f"at most {config.max_target_length} tokens"
            yield "answers", most, "--set max_target_length=N"
    key, unit = ("batch_tokens", " tokens") if config.batch_tokens else ("batch_size", "")
    yield "batches", f"{getattr(config, key):,}{unit} in a batch", f"--set {key}=N"
    by = config.keep_epoch.removeprefix("best_")
    by = config.metric if by == "score" else by
    by = by if config.target == "text" else "loss on dev"
    mean = f"mean of the last {config.average_epochs}"
    how = f"the epoch with the best {by}{f', or the {mean}' if config.average_epochs else ''}"
    if config.keep_epoch == "last":
        how = f"the {mean}" if config.average_epochs > 1 else "the last epoch"
    way_out = " --set keep_epoch=…" if config.has_key("keep_epoch") else ""
    stops = config.metric in ("characters", "symbols") and config.keep_epoch != "last"
    often = f", often fewer than {OFTEN}" if stops and config.epochs > OFTEN else ""
    yield "epochs", f"up to {config.epochs}{often}; keeps {how}", f"--set epochs=N{way_out}"
