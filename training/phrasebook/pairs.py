"""Pairs of sentences drawn from the grammar, and the split by combination."""

import random
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from types import ModuleType

from training.phrasebook import chinese, english, french
from training.phrasebook.families import Family, Pairing, stable_hash
from training.phrasebook.sentences import Sentence
from training.phrasebook.templates import TEMPLATES

Link = tuple[int, int]

PAIRS = ("en-fr", "en-zh")
SPLITS = ("train", "dev", "test")
TARGETS: dict[str, ModuleType] = {"en-fr": french, "en-zh": chinese}

# Of a hundred pairings, this many are kept for each split but train.
TEST_PERCENT = 8
DEV_PERCENT = 4
# Pairings of the sentences that README and demo show.
SHOWN = {("eat", "apple"), ("green", "apple"), ("like", "apple")}


@dataclass(frozen=True)
class Pair:
    """A sentence, its translation, their words, and links (source word, target word) from 0.

    `links` are all of them, `sure` those between words that say the same.

    The words occur in the text in order; spaces, where the language has any, are between them.
    """

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: frozenset[Link]
    sure: frozenset[Link]


@cache
def pairing_split(pairing: Pairing) -> str:
    """The split that holds a pairing of verb and object, or adjective and noun."""
    if pairing in SHOWN:
        return "test"
    percentile = stable_hash("split", *pairing) % 100
    if percentile < TEST_PERCENT:
        return "test"
    return "dev" if percentile < TEST_PERCENT + DEV_PERCENT else "train"


def family_split(pairings: tuple[Pairing, ...]) -> str | None:
    """The split of sentences with these pairings; None where dev and test would mix."""
    splits = {pairing_split(pairing) for pairing in pairings}
    if {"dev", "test"} <= splits:
        return None
    return "test" if "test" in splits else "dev" if "dev" in splits else "train"


@dataclass(frozen=True)
class Section:
    """The families of one template in one split, by group (a verb, an adjective …)."""

    name: str
    weight: int
    groups: tuple[tuple[Family, ...], ...]


@cache
def _sections(split: str) -> tuple[Section, ...]:
    sections = []
    for template, families in _all_families():
        groups: dict[str, list[Family]] = {}
        for family in families:
            if family_split(family.pairings) == split:
                groups.setdefault(family.group, []).append(family)
        if groups:
            chosen = tuple(tuple(group) for group in groups.values())
            sections.append(Section(template.name, template.weight, chosen))
    return tuple(sections)


@cache
def _all_families():
    return tuple((template, tuple(template.families())) for template in TEMPLATES)


def families(split: str) -> list[Family]:
    """All families of a split."""
    return [f for section in _sections(split) for group in section.groups for f in group]


@cache
def split_size(split: str) -> int:
    """How many pairs a split has, the same for each language."""
    return sum(family.size for family in families(split))


def _draw(sections: tuple[Section, ...], rng: random.Random) -> Iterator[tuple[Family, tuple]]:
    """Endless draws: a template by its weight, then a group, a family, and each option evenly."""
    uniform = rng.random
    bounds = list(accumulate(section.weight for section in sections))
    total = bounds[-1]
    while True:
        groups = sections[bisect_right(bounds, uniform() * total)].groups
        group = groups[int(uniform() * len(groups))]
        family = group[int(uniform() * len(group))]
        yield family, tuple([int(uniform() * len(choices)) for choices in family.options])


def _sample(split: str, count: int, rng: random.Random) -> list[Sentence]:
    drawn: dict[tuple[int, tuple[int, ...]], Family] = {}
    for family, indices in _draw(_sections(split), rng):
        if len(drawn) == count:
            break
        drawn[id(family), indices] = family
    return [
        family.build(*[choices[i] for choices, i in zip(family.options, key[1], strict=True)])
        for key, family in drawn.items()
    ]


def _everything(split: str, rng: random.Random) -> list[Sentence]:
    sentences = [
        family.build(*choice) for family in families(split) for choice in product(*family.options)
    ]
    order = [rng.random() for _ in sentences]
    return [sentences[i] for i in sorted(range(len(sentences)), key=order.__getitem__)]


def _capitalised(words: list[str]) -> list[str]:
    return [words[0][0].upper() + words[0][1:], *words[1:]]


@cache
def _read(tags: str) -> tuple[tuple[str, bool], ...]:
    """Each tag, and whether its links are sure: "vx?" is v for sure and x possibly."""
    return tuple((tag, mark != "?") for tag, mark in re.findall(r"([^?])(\??)", tags))


def realise(sentence: Sentence, pair: str) -> Pair:
    """The sentence in English and in the other language of the pair."""
    target = TARGETS[pair]
    source_tagged, target_tagged = english.words(sentence), target.words(sentence)
    places: dict[str, list[tuple[int, bool]]] = {}
    for i, (_, tags) in enumerate(source_tagged):
        for tag, sure in _read(tags):
            places.setdefault(tag, []).append((i, sure))
    links: dict[Link, bool] = {}
    for j, (_, tags) in enumerate(target_tagged):
        for tag, target_sure in _read(tags):
            for i, source_sure in places.get(tag, ()):
                links[i, j] = links.get((i, j), False) or (source_sure and target_sure)
    source_words = _capitalised([word for word, _ in source_tagged])
    target_words = _capitalised([word for word, _ in target_tagged])
    return Pair(
        english.text(source_words),
        target.text(target_words),
        tuple(source_words),
        tuple(target_words),
        frozenset(links),
        frozenset(link for link, sure in links.items() if sure),
    )


def generate(pair: str, split: str, count: int | None = None, seed: int = 0) -> list[Pair]:
    """Distinct pairs of a split in random order, the same for the same seed everywhere.

    Args:
        pair: "en-fr" or "en-zh".
        split: "train", "dev" or "test".
        count: how many pairs, drawn over all kinds of sentences; None for the whole split.
        seed: of the draw.

    Raises:
        ValueError: an unknown pair or split, or a count below 0 or above the split's size.
    """
    if pair not in PAIRS:
        raise ValueError(f"pair expected one of {', '.join(PAIRS)}. Received: {pair}")
    if split not in SPLITS:
        raise ValueError(f"split expected one of {', '.join(SPLITS)}. Received: {split}")
    size = split_size(split)
    if count is not None and not 0 <= count <= size:
        raise ValueError(f"count expected 0 to {size}, the size of {split}. Received: {count}")
    rng = random.Random(f"{split} {seed}")
    if count is not None and count <= size // 4:
        sentences = _sample(split, count, rng)
    else:
        sentences = _everything(split, rng)[:count]
    return [realise(sentence, pair) for sentence in sentences]
