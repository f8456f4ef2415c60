"""The texts of a run, divided into training, dev and test.

A hash of a source's text decides its split, so that a sentence stays in its split when the file
grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from training.command.progress import print_note
from training.data.read._files import Block
from training.data.read._pairs import LineCounts, TrainingSource, parse
from training.data.read._sentences import Split, in_target_script, merge_sources, number_of
from training.data.read._specs import CorpusError, Spec

HELD_OUT = ("dev", "test")
# Approximate lines that are held out for dev if no share is chosen: 1,000 of a large file, and of a
# small file enough to compare epochs.
DEV_SHARE, MOST_DEV = 0.02, 1000
SMALL_DEV_SHARE, SMALL_DEV = 0.1, 300
Pair = tuple[str, str]  # a source and its target
Shares = tuple[float, float]  # shares of the sources that are held out for dev and for test


class SplitRule(NamedTuple):
    """The rule that divides the pairs of a SPEC into training, dev and test."""

    shares: Shares  # shares of the sources that are held out for dev and test
    extra: bool  # whether pairs with a source in `measured` are left out, as from extra data
    measured: frozenset[str]  # known sources of dev and test
    script_of: str  # the SPEC whose script the targets are written in

    def pairs(self, block: Block, counts: LineCounts) -> Iterator[tuple[str, str, str]]:
        """Yield split, source and target of each pair; add counts of lines to `counts`."""
        split = in_target_script(parse(block, counts), self.script_of)
        for source, target in split.pairs():
            counts.shared += source in self.measured
            if not (self.extra and source in self.measured):
                yield split_of(source, self.shares), source, target


class SurveyedTexts(NamedTuple):
    """The texts of a run, after a first pass over their lines."""

    data: Spec
    sources: list[TrainingSource]  # the data, whose shares are held out, then extra data
    shares: Shares
    has_test: bool  # whether the run has a test set
    measured: dict[str, Split]  # dev and test; a held-out share is added once it is read
    digest: str  # SHA-256 of the files of data and dev
    stamps: dict[str, list[int]]  # size and time of each file

    def rule(self, source: TrainingSource) -> SplitRule:
        """Return the rule that divides the pairs of a source."""
        extra = source is not self.sources[0]
        known = frozenset(text for split in self.measured.values() for text in split.sources)
        shares = (0.0, 0.0) if extra else self.shares
        return SplitRule(shares, extra, known, self.data.text)

    def hold_out(
        self,
        source: TrainingSource,
        counts: LineCounts,
        pairs: Mapping[str, Sequence[Pair]],
        learned: int,
    ) -> None:
        """Check the lines of a source, which was read, and add its held-out pairs to `measured`.

        Args:
            source: one of `sources`.
            counts: the counts of its lines.
            pairs: its pairs of dev and of test.
            learned: number of training pairs up to this source.

        Raises CorpusError if there are too few pairs, or if the lines are of another kind.
        """
        spec, is_first = source.spec, source is self.sources[0]
        if spec.paths:
            counts.check()
        if is_first and counts.shared:
            print_note(
                f"Warning: {spec}: the sources of {counts.shared:,} pairs are also in dev or "
                "test, so scores may be too high"
            )
        if not learned:
            raise CorpusError(f"{spec} has no pair to train on")
        if not is_first:
            return
        for name, share in zip(HELD_OUT, self.shares, strict=True):
            if share and not pairs[name]:
                raise too_few(spec, name)
            if share:
                sources, targets = zip(*pairs[name], strict=True)
                split = Split([*sources], [[text] for text in targets])
                self.measured[name] = merge_sources(split)


def dev_share(lines: int) -> float:
    """Return the share of `lines` lines that is held out for dev if no share is chosen."""
    few = min(SMALL_DEV_SHARE * lines, SMALL_DEV)
    return min(max(DEV_SHARE * lines, few), MOST_DEV) / max(1, lines)


def too_few(data: Spec, name: str) -> CorpusError:
    """Return the error for data that are too small to hold out a sentence for dev or test."""
    return CorpusError(
        f"{data} has too few different sources for a {name} set. Add pairs, or give a file: "
        f"--{name} tsv:FILE"
    )


def split_of(source: str, shares: Shares) -> str:
    """Return the split of a source, given the shares that are held out for dev and test.

    A number from 0 to 1, which depends only on the source's text, decides.
    """
    if not any(shares):
        return "train"
    digest = number_of(source)
    place = (digest % 50 + digest // 50 % 1_000_000 / 1_000_000) / 50
    return "dev" if place < shares[0] else "test" if place >= 1 - shares[1] else "train"
