"""List the presets and the corpora: python -m training.presets."""

from __future__ import annotations

from training.command.options import Parser, main_guard
from training.config.schema import about_preset, preset_names
from training.data.read.named import _corpora as corpora

Rows = list[list[str]]
COLUMNS = ("task", "size", "time", "figure")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.presets",
        description="List the presets, with their task, size of corpus, time to train and figure "
        "to expect\n(docs/results.md), and the corpora with their splits, and whether they are "
        "here.",
        examples=("", "| grep tatoeba"),
    )
    parser.parse_args(arguments)
    presets: Rows = [
        [name, *(about_preset(name).get(column, "") for column in COLUMNS)]
        for name in preset_names()
    ]
    named: Rows = [
        [name, ", ".join(corpora.splits(name)), "yes" if corpora.is_here(name) else "no"]
        for name in corpora.NAMES
    ]
    for lines in ([["preset", *COLUMNS], *presets], [["corpus", "splits", "here"], *named]):
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
            print("  ".join(cells).rstrip())
        print()
    print("Train: python -m training.train --preset NAME. Own data: --data tsv:PATH.")


if __name__ == "__main__":
    main_guard(main)
