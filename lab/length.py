"""BLEU by source length: what a fixed context vector loses on long sentences.

After Bahdanau et al. 2014 (arXiv 1409.0473, figure 2) and Luong et al. 2015 (arXiv 1508.04025,
figure 6). Models translate three sets: `single`, the dev sentences of their corpus; `real`,
Multi30k's test sentences, longer and of another kind; and `joined`, dev sentences one after
another, so that length alone changes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab import shared
from training.command.errors import UserError
from training.command.options import add_options as add_common
from training.config.schema import Config
from training.data.read import texts as corpus
from training.data.read._sentences import Split
from training.data.read.texts import Texts, load_split
from training.decode.settings import SearchSettings
from training.metrics import bootstrap_interval, figures, lowered

ATTENTIONS = ("none", "additive", "general")
LENGTH_BUCKETS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 40))
PER_BUCKET = 300  # joined sentences of each length
ENOUGH = 50  # sentences; buckets with fewer are marked


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_models(parser, "tatoeba-en-fr")
    add_common(parser, "--beam-width", "--lowercase")


def run(options: argparse.Namespace) -> dict:
    """Run the study; return the values that its last line prints."""
    runs = shared.collect(options, {name: [f"attention={name}"] for name in ATTENTIONS})
    config = shared.same_data(runs)
    if "bleu" not in figures(config.metric):
        raise UserError(f"length expected translation models. Received: {config.data}")
    sets = load_sets(config)
    rows = []
    for name, found in runs.items():
        translated = shared.make_kept_translator(found, SearchSettings(options.beam_width))
        for set_name, split in sets.items():
            file = options.output / "translations" / f"{set_name}-{name}.json"
            hypotheses = translated(f"{name}, {set_name}", split.sources, file)
            rows += table_rows(set_name, name, hypotheses, split, config.metric, options.lowercase)
    shared.write_table(options.output / "length.csv", rows)
    draw(rows, options.output / "length.png")
    return {"losses": losses(rows)}


def load_sets(config: Config) -> dict[str, Split]:
    """Load and make the sets to translate."""
    data, (single, _) = config.data, load_split(Texts.of(config), "dev")
    sets = {"single": single}
    pair = re.search(r"en-\w+$", data)
    real = f"multi30k-{pair[0]}" if pair else ""
    if real in corpus.NAMES:
        sets["real"] = corpus.load(real, "test", script_of=data)
    else:
        print(f"No real sentences are known for {data}.")
    sets["joined"] = join(single, PER_BUCKET)
    return sets


def join(split: Split, per_bucket: int, seed: int = 0) -> Split:
    """Sentences one after another, `per_bucket` of each bucket's lengths.

    A length is drawn evenly from the bucket, then sentences at random, no one twice, until they
    have as many words; one that would make it more is passed over. The k-th reference is that of
    the k-th references; where a sentence has fewer, its first ones come again.
    """
    rng = np.random.default_rng(seed)
    words = [len(source.split()) for source in split.sources]
    sources, references = [], []
    for low, high in LENGTH_BUCKETS:
        made = 0
        for _ in range(100 * per_bucket):
            chosen = _draw(words, int(rng.integers(low, high + 1)), rng)
            if chosen is None:
                continue
            sources.append(" ".join(split.sources[i] for i in chosen))
            parts = [split.references[i] for i in chosen]
            count = max(map(len, parts))
            texts = [" ".join(part[k % len(part)] for part in parts) for k in range(count)]
            references.append(list(dict.fromkeys(texts)))
            made += 1
            if made == per_bucket:
                break
        else:
            raise UserError(f"these sentences cannot be joined to {low} to {high} words")
    return Split(sources, references)


def _draw(words: Sequence[int], length: int, rng: np.random.Generator) -> list[int] | None:
    """Positions of sentences with `length` words together, or None after too many tries."""
    chosen: list[int] = []
    for i in rng.integers(len(words), size=50 + 10 * length).tolist():
        if 0 < words[i] <= length and i not in chosen:
            chosen.append(i)
            length -= words[i]
        if not length:
            return chosen
    return None


def table_rows(
    set_name: str, name: str, hypotheses: Sequence[str], split: Split, metric: str, lowercase: bool
) -> list[dict]:
    """Rows of the table: a set translated by a model."""
    texts = hypotheses, split.references
    texts = lowered(*texts) if lowercase else texts
    bleu, rows = figures(metric)["bleu"], []
    statistics = np.array(bleu.statistics(*texts))
    words = np.array([len(source.split()) for source in split.sources])
    references = np.array([len(each) for each in split.references])
    for least, most in LENGTH_BUCKETS:
        inside = (least <= words) & (words <= most)
        if not (sentences := int(inside.sum())):
            continue
        low, high = bootstrap_interval(statistics[inside], bleu.value)
        row = {"set": set_name, "attention": name, "words": f"{least}-{most}"}
        row |= {"sentences": sentences, "references": round(float(references[inside].mean()), 2)}
        row |= {"few": "yes" if sentences < ENOUGH else "no"}
        row |= {"bleu": bleu.value(statistics[inside].sum(axis=0)), "low": low, "high": high}
        rows.append(row)
    return rows


def losses(rows: Sequence[dict]) -> dict[str, dict[str, dict]]:
    """BLEU that each model loses from the first to the last bucket with enough sentences.

    Returns:
        By set and model `from`, `to` (words) and `lost`, in percent of the first bucket's BLEU.
    """
    result: dict[str, dict[str, dict]] = {}
    for row in rows:
        if row["few"] == "yes":
            continue
        models = result.setdefault(row["set"], {})
        first = models.setdefault(row["attention"], {"from": row["words"], "first": row["bleu"]})
        lost = 100 * (1 - row["bleu"] / first["first"]) if first["first"] else 0.0
        first |= {"to": row["words"], "last": row["bleu"], "lost": round(lost, 1)}
    return result


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw BLEU over length, a panel for each set; hollow where there are few sentences."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    names = [f"{low}-{high}" for low, high in LENGTH_BUCKETS]
    figure, (panels,) = shared.new_figure(1, len(sets))
    for axes, set_name in zip(panels, sets, strict=True):
        counts = {row["words"]: row["sentences"] for row in rows if row["set"] == set_name}
        for number, name in enumerate(dict.fromkeys(row["attention"] for row in rows)):
            own = [row for row in rows if (row["set"], row["attention"]) == (set_name, name)]
            at = [names.index(row["words"]) for row in own]
            bleu = np.array([row["bleu"] for row in own])
            ends = np.array([[row["low"], row["high"]] for row in own]).T
            bars = np.abs(ends - bleu)
            color = f"C{number}"
            axes.errorbar(at, bleu, bars, color=color, capsize=3, label=f"attention: {name}")
            full = [color if row["few"] == "no" else "white" for row in own]
            axes.scatter(at, bleu, c=full, edgecolors=color, zorder=3)
        axes.set_xticks(
            range(len(names)), [f"{name}\n({counts.get(name, 0)})" for name in names], fontsize=8
        )
        axes.set_title(set_name)
        axes.set_xlabel("source words (sentences)")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("BLEU, 95 % interval")
    panels[0].legend()
    figure.savefig(path, dpi=120)
