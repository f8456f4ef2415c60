"""Traits of own data: what pairs are made of, and whether targets follow their sources."""

from __future__ import annotations

import itertools
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from string import punctuation
from typing import NamedTuple

from training.command.progress import up_to

NEARLY_ALL = 0.95
LARGEST_ALPHABET = 250  # letters, or symbols between spaces
LEAST_USES = 2  # average uses of a letter, in a larger alphabet
FEW_NEW = 0.01  # largest share of new words among held-out words, in a closed vocabulary
RARE = 5  # a word with fewer uses is rare
MANY_COPY = 0.5  # share of pairs that repeat a word, from which on the data count as copies
MOST_COPY = 0.8  # share of rare words that are copies; in sentences of four languages, at most 11 %
# Shares of pairs whose order changes. Below FOLLOWS, targets follow their sources; above CHANGES,
# they do not: see docs/results/choices.md.
FOLLOWS, CHANGES = 0.03, 0.2
SKIPS = 2.5  # times as many letters in sources as in targets: most of a source is skipped
MOST_CROSSED = 0.5  # share of pairs; few words with their phones show more changes than there are
LONG_SYMBOL = 3.5  # letters of a phone with its space, and letters of a word for each phone
LEAST_COPIED = 3  # letters; a shorter word does not count as copied
LEAST_POINTS = 0.5  # points per pair, from which on the order counts as known
_MOST = 10_000  # most pairs that are measured
_WORK = 1_000_000  # co-occurrences that are counted: half a second
# Scripts without spaces: Thai, Lao, Burmese, Khmer, kana, Han.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_RUN = 3  # letters of a target's run
_UNSPACED_WORD = 5  # letters that count as one word, in these scripts
_Split = Callable[[str], list[str]]
_WORD = re.compile(r"\w+")
_PART_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")  # within names such as getPage and get_page


class Side(NamedTuple):
    """The texts of a side, source or target. Letters are code points of Unicode's NFD."""

    letters: int  # most letters, in nearly all texts
    longest: int  # letters and accents of the longest text
    words: float  # most words, in nearly all texts; scripts without spaces count, too
    mean: float  # words between spaces, on average
    alphabet: int  # different letters
    uses: float  # average uses of a letter
    vocabulary: int  # different words between spaces
    repeats: float  # average uses of a word
    new: float  # share of the words in every tenth text that the other texts lack

    @property
    def readable(self) -> bool:
        """Whether each letter occurs often enough to be learned."""
        return self.alphabet <= LARGEST_ALPHABET or self.uses >= LEAST_USES

    @property
    def closed(self) -> bool:
        """Whether words repeat and hardly any is new: words are symbols, such as phones."""
        return self.repeats >= RARE and self.new <= FEW_NEW

    def __str__(self) -> str:
        lengths = up_to(self.letters, self.longest, "letters")
        return (
            f"{lengths} ({self.alphabet:,} different), {self.mean:.1f} words on average "
            f"({self.vocabulary:,} different; {self.new:.0%} occur in one tenth only)"
        )


class Traits(NamedTuple):
    """Traits of pairs, measured on a sample."""

    source: Side
    target: Side
    copies: bool  # whether most held-out targets repeat numbers or rare words of their sources
    reordered: float | None  # share of pairs whose order changes; None if too little is explained
    # Whether words of sources explain targets, but their letters do not.
    explained_by_whole_words: bool = False

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the traits as rows for people, each a name and a text."""
        yield "sources", str(self.source)
        yield "targets", str(self.target)
        if self.copies:
            yield "copying", "targets repeat numbers or rare words of their sources"
        if self.reordered is None:
            yield "order", "unknown: sources explain too few parts of their targets"
        else:
            yield "order", f"the order differs in {self.reordered:.0%} of the pairs"

    @property
    def symbols(self) -> bool:
        """Whether targets are two symbols or more between spaces, and not copies.

        More than LARGEST_ALPHABET words are symbols only in the order of their sources.
        """
        few = self.target.vocabulary <= LARGEST_ALPHABET or self.follows
        return few and self.target.closed and self.target.mean >= 2 and not self.copies

    @property
    def phones(self) -> bool:
        """Whether targets look like the phones of a word: short symbols, about one for each letter.

        60 pairs show this, too few for `symbols`.
        """
        source, target = self.source, self.target
        if (self.reordered or 0.0) > MOST_CROSSED or target.mean < 2:
            return False
        few = target.vocabulary <= LARGEST_ALPHABET and target.repeats >= RARE
        short = target.letters <= LONG_SYMBOL * target.words
        return few and short and source.letters <= LONG_SYMBOL * target.words

    @property
    def follows(self) -> bool:
        """Whether targets follow their sources from left to right."""
        return self.reordered is not None and self.reordered < FOLLOWS

    @property
    def doubtful(self) -> bool:
        """Whether the order does not decide between the two attentions.

        Where most of a source is skipped, hard monotonic attention may skip too much.
        """
        if self.reordered is None:
            return True
        skips = self.source.letters >= SKIPS * self.target.letters
        skips &= not self.explained_by_whole_words
        return self.reordered <= CHANGES and (skips or not self.follows)


def recognise(pairs: Sequence[tuple[str, str]]) -> Traits:
    """Return the traits of pairs of texts, measured in about a second on at most `_MOST` pairs."""
    pairs = list(dict.fromkeys(pairs))  # a repeated pair adds no evidence
    longest = [max(len(_parts(text)) for text in texts) for texts in zip(*pairs, strict=True)]
    pairs = random.Random(0).sample(pairs, min(len(pairs), _MOST))
    parts = [(_parts(source), _parts(target)) for source, target in pairs]
    source, target = map(_side, zip(*parts, strict=True), longest)
    traits = Traits(source, target, _copies(pairs), None)
    # different targets: labels, of a word or more
    few = 10 * len({said for _, said in pairs}) <= len(pairs)
    if few or (target.closed and target.mean < 2):  # a label has no order
        return traits
    # Runs of letters also show a change of order within words, as in "fünfundzwanzig".
    closed = traits._replace(reordered=0.0).symbols
    splits: list[_Split] = [str.split, list] if closed else [_runs, list, str.split]
    # letters in parts, too: targets write tones late
    tried = [(split, each) for split in splits for each in (pairs, parts)]
    if source.closed:  # words such as codons or Morse code: map each word to a letter
        names: defaultdict[str, str] = defaultdict(lambda: chr(0xE000 + len(names)))
        worded = [("".join(names[word] for word in text.split()), said) for text, said in pairs]
        tried += [(split, worded) for split in splits]
    for number, (split, each) in enumerate(tried):
        share, points = reordered(each, split)
        if points >= LEAST_POINTS:
            by_words = number >= 2 * len(splits)
            return traits._replace(reordered=share, explained_by_whole_words=by_words)
    return traits


def reordered(pairs: Sequence[tuple[str, str]], split: _Split) -> tuple[float, float]:
    """Measure how many targets, cut into tokens by `split`, change the order of their sources.

    Each target token is explained by the 1 to 3 source letters that predict the token best: their
    Dice coefficient over pairs is above 0.6. If two strings of letters tie, letters that the token
    contains win. A token that stands in the source explains itself. If token and letters each occur
    once in a pair, the place of the letters in the source is a point.

    Example: "3" explains "three" and "May" explains "May". The pair ("3 May", "May three") has the
    points 3.5 and 0.5, in the order of the target. The second point is smaller: the order changes.
    Pairs are counted, not points: a date in front of a long copy changes the order as well.

    Args:
        pairs: sources with their targets.
        split: cuts a target into tokens.

    Returns:
        The share of pairs, among those with two points, whose order changes; points per pair.
    """
    drawn, work, data = random.Random(0).sample(pairs, min(len(pairs), 2000)), 0, []
    of_source, of_target, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for source, target in drawn:
        places = defaultdict[str, list[float]](list)
        for size in (1, 2, 3):
            for place in range(len(source) - size + 1):
                places[source[place : place + size]].append(place + size / 2)
        tokens = Counter(said := split(target))
        data.append((source, places, tokens, said))
        of_source.update(places.keys())
        of_target.update(tokens.keys())
        both.update(itertools.product(places, tokens))
        work += len(places) * len(tokens)
        if work > _WORK:
            break
    best: dict[str, tuple[float, bool, str]] = {}
    common = 0.5 * len(data)  # letters and tokens in most pairs explain nothing
    for (letters, token), count in both.items():
        dice = 2 * count / (of_source[letters] + of_target[token])
        rare = of_source[letters] < common and of_target[token] < common
        found = dice, letters in token, letters
        if count >= 5 and rare and dice > 0.6 and found[:2] > best.get(token, (0.0,))[:2]:
            best[token] = found
    crossing = ordered = points = 0
    for source, places, tokens, said in data:
        line = list[tuple[int, float]]()  # the place of a token in the target, and its point
        for number, token in enumerate(said):
            word = token.strip(punctuation)
            if tokens[token] == 1 and token in best and len(places[best[token][-1]]) == 1:
                line.append((number, places[best[token][-1]][0]))
            elif tokens[token] == 1 and len(word) >= LEAST_COPIED and source.count(word) == 1:
                line.append((number, source.index(word) + len(word) / 2))
        if len({point for _, point in line}) > 1:  # a single point has no order
            ordered, points = ordered + 1, points + len(line)
            apart = _RUN if split is _runs else 1  # runs that overlap have no order
            crossing += any(
                point > other and then - now >= apart
                for (now, point), (then, other) in itertools.combinations(line, 2)
            )
    return crossing / max(ordered, 1), points / max(len(data), 1)


def _copies(pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether most held-out targets repeat numbers or rare words of their sources.

    Most of the rare words of these targets must be in their sources: sentences repeat names, too,
    but most of their rare words are words of the language. Parts of names are words.
    """
    split = [
        (text.lower(), _WORD.findall(_PART_ENDS.sub(" ", said).lower())) for text, said in pairs
    ]
    held = split[::10]
    known = Counter(word for _, words in split for word in words)
    known.subtract(word for _, words in held for word in words)
    copied = rare = explained = 0
    for text, words in held:
        told = [word for word in words if known[word] < RARE or word.isdigit()]
        repeated = sum(word in text for word in told)
        copied, rare, explained = copied + (repeated > 0), rare + len(told), explained + repeated
    return copied >= MANY_COPY * len(held) and explained >= MOST_COPY * rare


def _side(texts: Sequence[str], longest: int) -> Side:
    letters = Counter("".join(texts))
    counts = [len(text.split()) + len(_UNSPACED.findall(text)) // _UNSPACED_WORD for text in texts]
    words = [text.split() for text in texts]
    known = {word for n, text in enumerate(words) if n % 10 for word in text}
    held = [word for text in words[::10] for word in text]
    return Side(
        letters=_most(map(len, texts)),
        longest=longest,
        words=_most(counts),
        mean=sum(map(len, words)) / len(texts),
        alphabet=len(letters),
        uses=letters.total() / max(1, len(letters)),
        vocabulary=len(used := known.union(held)),
        repeats=sum(map(len, words)) / max(1, len(used)),
        new=sum(word not in known for word in held) / max(1, len(held)),
    )


def _runs(text: str) -> list[str]:
    return [text[place : place + _RUN] for place in range(len(text) - _RUN + 1)]


def _parts(text: str) -> str:
    """Return a text with Korean syllables and accented letters decomposed into their parts."""
    return unicodedata.normalize("NFD", text)


def _most(numbers: Iterable[int]) -> int:
    """Return the least number that nearly all numbers do not exceed."""
    ranked = sorted(numbers)
    return ranked[max(0, -int(-NEARLY_ALL * len(ranked) // 1) - 1)]
