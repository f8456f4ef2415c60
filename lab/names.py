"""Names that training never saw: whether they come through a translation.

Sentences with a name that stands in the source and in all references are translated twice: as they
are, and with names that stand nowhere in the training split. A row for each model has the BLEU of
both and the percentage of names that come through. Models with vocabularies of words that do not
copy have a second row, with unknown words replaced by the source word that was looked at.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab import shared
from training.command.errors import UserError
from training.command.options import add_options as add_common
from training.config.schema import Config
from training.data.read import texts as corpus
from training.data.read._sentences import Split
from training.data.read.texts import Texts, load_split
from training.data.tokens._token_ids import WORD, replace_words
from training.data.tokens.tokenizers import VocabularyTokenizer
from training.decode.settings import SearchSettings
from training.metrics import bootstrap_interval, figures, ratio
from training.runs.run import Run, load_run

# They begin with a consonant, so that articles and prepositions before them stay as they are.
NAMES = tuple(
    WORD.findall(
        "Babajide Bakhyt Bertoldo Birgitta Bogumil Branwen Casimira Chandra Chidubem Dagmar "
        "Dalibor Demetrio Dragomir Dyfed Faustino Feodora Fikret Fulgencio Gebhard Ghislain "
        "Gintaras Guthrum Jadwiga Jarmila Jovana Kazimir Kjersti Kofoworola Kunigunde Lakshmi "
        "Leofric Liudmila Lubomir Maarten Mahendra Mireia Mstislav Ngozi Niamh Pakorn Parvaneh "
        "Pelagia Radoslav Raghnall Rosendo Ruslana Sandor Sigrid Siobhan Svetozar Tadeusz "
        "Taliesin Thandiwe Tindaro Torvald Vasilisa Vebjorn Waclaw Wulfric Zbigniew Zdenka "
        "Zoltan"
    )
)


@dataclass(frozen=True)
class NamedSplit:
    """Sentences, and the names that a translation of each must have."""

    split: Split
    names: list[list[str]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_runs(parser)
    shared.add_data(parser)
    add_common(parser, "--beam-width")


def run(options: argparse.Namespace) -> dict:
    """Run the study; return the values that its last line prints."""
    runs = {name: load_run(path) for name, path in shared.given_runs(options).items()}
    if not runs:
        raise UserError("names expected --run NAME=DIR")
    config = shared.same_data(runs)
    if not config.metric.startswith("bleu"):
        raise UserError(f"names expected translation models. Received: {config.data}")
    known = named(load(config, options))
    if not known.names:
        raise UserError(
            f"{options.split} expected names that all references repeat. Received: none"
        )
    seen = words_of(load_split(Texts.of(config), "train")[0])
    sets = {"known": known, "new": renamed(known, seen)}
    rows = []
    for name, found in runs.items():
        rows.append(table_row(options, name, found, sets, replaces_unknown=False))
        if isinstance(found.target_tokenizer, VocabularyTokenizer) and not found.config.copy:
            name = f"{name}, unknown replaced"
            rows.append(table_row(options, name, found, sets, replaces_unknown=True))
    shared.write_table(options.output / "names.csv", rows)
    draw(rows, options.output / "names.png")
    return {"sentences": len(known.names), "names": rows}


def load(config: Config, options: argparse.Namespace) -> Split:
    """Read the sentences to translate."""
    if not options.data:
        return load_split(Texts.of(config), options.split)[0]
    return corpus.load(options.data, options.split, script_of=config.data)


def named(split: Split) -> NamedSplit:
    """Sentences with a capitalised word that stands as often in every reference, above zero."""
    chosen, names = [], []
    for index, (source, references) in enumerate(zip(split.sources, split.references, strict=True)):
        words = WORD.findall(source)
        others = [WORD.findall(reference) for reference in references]
        found = [
            word
            for word in dict.fromkeys(words)
            if len(word) > 1
            and word.istitle()
            and all(other.count(word) == words.count(word) for other in others)
        ]
        if found:
            chosen.append(index)
            names.append(found)
    return NamedSplit(
        Split([split.sources[i] for i in chosen], [split.references[i] for i in chosen]), names
    )


def renamed(sentences: NamedSplit, seen: set[str], seed: int = 0) -> NamedSplit:
    """The same sentences with other names, none of which is among the words `seen`."""
    rng = np.random.default_rng(seed)
    new = [name for name in NAMES if name not in seen]
    if max(map(len, sentences.names)) > len(new):
        raise UserError(
            f"new names are too few: the training data lacks {len(new)} of {len(NAMES)}"
        )
    sources, references, names = [], [], []
    for i, old in enumerate(sentences.names):
        drawn = rng.choice(new, size=len(old), replace=False).tolist()
        other = dict(zip(old, drawn, strict=True))
        sources.append(replace_words(sentences.split.sources[i], other))
        references.append([replace_words(text, other) for text in sentences.split.references[i]])
        names.append(drawn)
    return NamedSplit(Split(sources, references), names)


def words_of(split: Split) -> set[str]:
    """Every word of the sources and of the references."""
    texts = [*split.sources, *(text for texts in split.references for text in texts)]
    return {word for text in texts for word in WORD.findall(text)}


def came_through(hypotheses: Sequence[str], names: Sequence[Sequence[str]]) -> np.ndarray:
    """Names that a translation has as whole words, and names it should have: `(N, 2)`."""
    return np.array(
        [
            [len(set(expected) & set(WORD.findall(text))), len(expected)]
            for text, expected in zip(hypotheses, names, strict=True)
        ]
    )


def table_row(
    options: argparse.Namespace,
    name: str,
    found: Run,
    sets: dict[str, NamedSplit],
    replaces_unknown: bool,
) -> dict:
    """The table's row of a model."""
    row: dict = {"model": name, "weights": found.model.count_params()}
    asked = SearchSettings(options.beam_width, replaces_unknown=replaces_unknown)
    translated = shared.make_kept_translator(found, asked)
    for kind, sentences in sets.items():
        sources, references = sentences.split.sources, sentences.split.references
        file = options.output / "translations" / f"{kind}-{name.replace(', ', '-')}.json"
        hypotheses = translated(name, sources, file)
        through = came_through(hypotheses, sentences.names)
        low, high = bootstrap_interval(through, ratio)
        row[f"{kind}_bleu"] = figures(found.config.metric)["bleu"].score(hypotheses, references)
        row[f"{kind}_names"] = 100 * ratio(through.sum(axis=0))
        row[f"{kind}_low"], row[f"{kind}_high"] = 100 * low, 100 * high
    return row


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw the names that came through, and BLEU, of known and of new names."""
    titles = {"names": "names that came through, %, 95 % interval", "bleu": "BLEU"}
    figure, (panels,) = shared.new_figure(1, len(titles), height=0.5 * len(rows) + 1.2)
    for number, (axes, (column, title)) in enumerate(zip(panels, titles.items(), strict=True)):
        for shift, kind in ((-0.2, "known"), (0.2, "new")):
            places = np.arange(len(rows)) + shift
            values = np.array([row[f"{kind}_{column}"] for row in rows])
            ends = np.array([[row[f"{kind}_low"], row[f"{kind}_high"]] for row in rows]).T
            bars = np.abs(ends - values) if column == "names" else None
            axes.barh(places, values, 0.4, xerr=bars, capsize=3, label=f"{kind} names")
        axes.set_yticks(range(len(rows)), [row["model"] for row in rows] if not number else [])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(title)
        axes.grid(axis="x", alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=120)
