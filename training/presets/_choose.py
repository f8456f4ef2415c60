"""The rules that choose how to train on pairs of texts: the table of docs/choices.md."""

from __future__ import annotations

from typing import NamedTuple

from training.data.rules import ALPHABETS
from training.presets._recognise import LARGEST_ALPHABET, Traits

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
