"""List the presets and the corpora: python -m training.presets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from training.command.options import Parser, main_guard
from training.config.schema import about_preset, preset_names
from training.data import corpus

COLUMNS = ("task", "size", "time", "figure")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.presets",
        description="List the presets, with their task, size of corpus, time to train and figure "
        "to expect\n(docs/results.md), and the corpora with their splits, and whether they are "
        "here.",
        examples=["", "--json"],
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    presets: list[dict[str, str]] = [
        {"preset": name, **about_preset(name)} for name in preset_names()
    ]
    corpora = [
        {
            "corpus": name,
            "splits": ", ".join(corpus.splits(name)),
            "here": "yes" if corpus.is_here(name) else "no",
        }
        for name in corpus.NAMES
    ]
    if options.json:
        print(json.dumps({"presets": presets, "corpora": corpora}, ensure_ascii=False))
        return
    print_table(("preset", *COLUMNS), presets)
    print()
    print_table(("corpus", "splits", "here"), corpora)
    print("\nTrain: python -m training.train --preset NAME. Own data: --data tsv:PATH.")


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    """Print some columns of rows."""
    lines = [columns, *([row.get(column, "") for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    main_guard(main)
