"""Own data, recognised: of what pairs are made, and whether targets follow their sources."""

from __future__ import annotations

import itertools
import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from operator import itemgetter
from string import punctuation
from typing import NamedTuple

NEARLY_ALL = 0.95
LARGEST_ALPHABET = 250  # letters, or symbols between spaces
LEAST_USES = 2  # of a letter of a larger alphabet, on average
FEW_NEW = 0.01  # of held-out words, in a closed vocabulary
RARE = 5  # uses, below which a word is rare: there are new ones, too, where many are
MANY_COPY = 0.5  # of pairs, where words are copied
MOST_COPY = 0.8  # of rare words: of those of sentences at most 11 % are copies, in four languages
# Nothing was seen between 2 and 8 %: spelling to phones has 0 to 1 % crossed in 22 languages, names
# in a row of which two change places 8, German numbers 14, dates and codes 25 to 100.
FOLLOWS = 0.05
LEAST_COPIED = 3  # letters of a word that stands on both sides
LEAST_POINTS = 0.5  # a pair, by which the order is known
_MOST = 10_000  # pairs measured
_USES = 3  # of a token in a pair, where the first ones tell too little
_WORK = 1_000_000  # co-occurrences counted, half a second's
# Scripts without spaces: Thai, Lao, Burmese, Khmer, kana, Han.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_UNSPACED_WORD = 5  # letters
_WORD = re.compile(r"\w+")
_Use = tuple[str, int]  # letters or a token, and how many of the same stand before


class Side(NamedTuple):
    """The texts of a side."""

    letters: int  # at most, in nearly all texts
    longest: int  # letters, and their accents, of the longest text
    words: float  # at most, in nearly all texts
    mean: float  # words between spaces, on average
    alphabet: int  # different letters
    uses: float  # of a letter, on average
    vocabulary: int  # different words between spaces
    new: float  # share of words in every tenth text that the other texts lack

    @property
    def readable(self) -> bool:
        """Whether letters come often enough to be learned."""
        return self.alphabet <= LARGEST_ALPHABET or self.uses >= LEAST_USES

    @property
    def closed(self) -> bool:
        """Whether words are a few that come again: symbols, such as phones."""
        return self.vocabulary <= LARGEST_ALPHABET and self.new <= FEW_NEW

    def __str__(self) -> str:
        return (
            f"up to {self.letters} letters, {self.alphabet:,} different; {self.mean:.1f} words, "
            f"{self.vocabulary:,} different, {self.new:.0%} new"
        )


class Traits(NamedTuple):
    """Pairs, measured on a sample."""

    source: Side
    target: Side
    # share of held-out pairs of which a number, a rare word (or one nearly it) or all words of the
    # target stand on both sides; 0 where many new and many rare words are not in their sources
    copied: float
    alike: float  # share of pairs of as many words on both sides
    crossed: float | None  # share of places in another order; None where too little is explained
    by_words: bool = False  # whether words of sources explain targets, and their letters do not

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the rows that say so, each a name and a text."""
        yield "sources", str(self.source)
        yield "targets", str(self.target)
        if self.copied >= MANY_COPY:
            what = "a number, rare or all words on both sides, or nearly"
            yield "copies", f"{self.copied:.0%} of pairs have {what}"
        if self.crossed is None:
            yield "order", "unknown: too few tokens of targets are explained by their sources"
        else:
            kept = "targets follow their sources" if self.follows else "targets change the order"
            yield "order", f"{kept}: {self.crossed:.0%} of places are crossed"

    @property
    def symbols(self) -> bool:
        """Whether targets are symbols between spaces, two and more, and no copies."""
        return self.target.closed and self.target.mean >= 2 and self.copied < MANY_COPY

    @property
    def follows(self) -> bool:
        """Whether targets follow their sources from left to right."""
        return self.crossed is not None and self.crossed < FOLLOWS


def recognise(pairs: Sequence[tuple[str, str]]) -> Traits:
    """Measure pairs of texts, or as many of them as a second allows."""
    pairs = list(dict.fromkeys(pairs))  # a pair that comes again proves nothing more
    pairs = random.Random(0).sample(pairs, min(len(pairs), _MOST))
    parts = [(_parts(source), _parts(target)) for source, target in pairs]
    source, target = (_side(texts) for texts in zip(*parts, strict=True))
    alike = sum(len(text.split()) == len(said.split()) for text, said in pairs) / len(pairs)
    traits = Traits(source, target, _copied(pairs), alike, None)
    few = 10 * len({said for _, said in pairs}) <= len(pairs)  # texts, of a word or more
    if few or (target.closed and target.mean < 2):  # a label has no order
        return traits
    forms = [pairs] if parts == pairs else [pairs, parts]  # letters' parts: tones come late
    # Runs of letters tell what changes places within words, too, as in "fünfundzwanzig".
    splits: list[Callable[[str], list[str]]]
    splits = [str.split, list] if traits.symbols else [_runs, list, str.split]
    tried = [(split, each) for split in splits for each in forms]
    if source.closed:  # words such as codons and Morse's, each a letter
        names: defaultdict[str, str] = defaultdict(lambda: chr(0xE000 + len(names)))
        worded = [("".join(names[word] for word in text.split()), said) for text, said in pairs]
        tried += [(split, worded) for split in splits]
    turns = (1, _USES) if traits.symbols else (1,)  # words of digits stand in most pairs
    for uses, (number, (split, each)) in itertools.product(turns, enumerate(tried)):
        share, points = crossed(each, split, uses)
        if points >= LEAST_POINTS:
            return traits._replace(crossed=share, by_words=number >= len(splits) * len(forms))
    return traits


def crossed(
    pairs: Sequence[tuple[str, str]], split: Callable[[str], list[str]], uses: int = 1
) -> tuple[float, float]:
    """Measure whether targets, cut by `split`, follow their sources.

    Each token of a target is explained by the letters, 1 to 3, of sources that predict it best
    (Dice over pairs above 0.6; of equals those that it holds), or by itself where it stands in the
    source. Where both stand once in a pair, their places are a point. With several `uses`, those
    after the first tell of what stands in most pairs, as digits do.

    Return the share of pairs of points that run the other way, and points a pair that compare.
    """
    drawn, work, data = random.Random(0).sample(pairs, min(len(pairs), 2000)), 0, []
    of_source, of_target, both = Counter[_Use](), Counter[_Use](), Counter[tuple[_Use, _Use]]()
    for source, target in drawn:
        places = defaultdict[str, list[float]](list)
        for size in (1, 2, 3):
            for place in range(len(source) - size + 1):
                places[source[place : place + size]].append(place + size / 2)
        tokens = Counter(said := split(target))
        data.append((source, places, tokens, said))
        read = [(letters, use) for letters, at in places.items() for use in range(len(at))[:uses]]
        asked = [(token, use) for token, n in tokens.items() for use in range(n)[:uses]]
        of_source.update(read)
        of_target.update(asked)
        both.update(itertools.product(read, asked))
        work += len(read) * len(asked)
        if work > _WORK:
            break
    best: dict[str, tuple[int, float, bool, str]] = {}
    common = 0.5 * len(data)  # what stands in most pairs says nothing
    for (left, right), count in both.items():
        (letters, use), (token, _) = left, right
        dice = 2 * count / (of_source[left] + of_target[right])
        rare = of_source[left] < common and of_target[right] < common
        found = -use, dice, letters in token, letters
        if count >= 5 and rare and use == right[1] and dice > (0.9 if use else 0.6):
            best[token] = max(best.get(token, found), found, key=itemgetter(0, 1, 2))
    other = total = points = 0
    for source, places, tokens, said in data:
        line = list[float]()
        for token in said:
            word = token.strip(punctuation)
            if tokens[token] == 1 and token in best and len(places[best[token][-1]]) == 1:
                line.append(places[best[token][-1]][0])
            elif tokens[token] == 1 and len(word) >= LEAST_COPIED and source.count(word) == 1:
                line.append(source.index(word) + len(word) / 2)
        points += len(line) if len(set(line)) > 1 else 0  # one alone has no order
        for a, b in itertools.combinations(line, 2):
            other, total = other + (a > b), total + (a != b)
    return other / max(total, 1), points / max(len(data), 1)


def _copied(pairs: Sequence[tuple[str, str]]) -> float:
    """Return the share of pairs that copy words: new ones, or rare ones, whichever is more."""
    known = Counter(word for _, said in pairs for word in _WORD.findall(said.lower()))
    held = [(text.lower(), _WORD.findall(said.lower())) for text, said in pairs[::10]]
    known.subtract(word for _, words in held for word in words)
    return max(_share_copied(held, known, uses) for uses in (1, RARE))


def _share_copied(
    held: Sequence[tuple[str, list[str]]], known: Mapping[str, int], uses: int
) -> float:
    """Return the share of held-out pairs that copy, where their rare words mostly are copies.

    A word that the other targets have fewer than `uses` times is rare. `held` has sources, and
    the words of their targets.
    """
    copied = few = explained = 0
    for text, words in held:
        rare = [word for word in words if known[word] < uses]
        there = {word for word in words if _made_of(word, text)}
        there.update(word for word in rare if get_close_matches(word, _WORD.findall(text), 1))
        numbers = {word for word in words if any(map(str.isdigit, word))}
        long = numbers.union(word for word in words if len(word) >= LEAST_COPIED)
        copied += 0 < len(long) == len(long & there) or bool(there & {*numbers, *rare})
        few, explained = few + len(rare), explained + sum(word in there for word in rare)
    return copied / len(held) if explained >= MOST_COPY * few else 0.0


def _side(texts: Sequence[str]) -> Side:
    letters = Counter("".join(texts))
    counts = [len(text.split()) + len(_UNSPACED.findall(text)) // _UNSPACED_WORD for text in texts]
    words = [text.split() for text in texts]
    known = {word for n, text in enumerate(words) if n % 10 for word in text}
    held = [word for text in words[::10] for word in text]
    return Side(
        letters=_most(map(len, texts)),
        longest=max(map(len, texts)),
        words=_most(counts),
        mean=sum(map(len, words)) / len(texts),
        alphabet=len(letters),
        uses=letters.total() / max(1, len(letters)),
        vocabulary=len(known.union(held)),
        new=sum(word not in known for word in held) / max(1, len(held)),
    )


def _runs(text: str) -> list[str]:
    return [text[place : place + 3] for place in range(len(text) - 2)]


def _made_of(word: str, text: str) -> bool:
    """Return whether a word, or each of two halves of it, stands in a text."""
    cuts = range(LEAST_COPIED, len(word) - LEAST_COPIED + 1)
    return word in text or any(word[:n] in text and word[n:] in text for n in cuts)


def _parts(text: str) -> str:
    """Return a text with Korean syllables and accented letters in their parts."""
    return unicodedata.normalize("NFD", text)


def _most(numbers: Iterable[int]) -> int:
    """Return the number that nearly all do not exceed."""
    ranked = sorted(numbers)
    return ranked[max(0, -int(-NEARLY_ALL * len(ranked) // 1) - 1)]
