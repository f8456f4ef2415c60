"""Prints pairs of the built-in corpus: source and target, separated by a tab."""

from __future__ import annotations

from training.command.options import Parser, count, main_guard, positive_int
from training.data.read import texts as corpus
from training.data.read.named import _corpora as corpora

PAIRS = ("en-fr", "en-zh")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.phrasebook",
        description=__doc__,
        examples=["--count 10", "--pair en-zh --split train --seed 3 > pairs.tsv"],
    )
    parser.add_argument("--pair", default="en-fr", choices=PAIRS, help="pair of languages")
    splits = corpora.splits("phrasebook-en-fr")
    parser.add_argument("--split", default="test", choices=splits, help="split of the corpus")
    parser.add_argument("--count", type=positive_int, metavar="N", help="pairs; default: all")
    parser.add_argument("--seed", type=count, default=0, metavar="N", help="seed of the draw")
    options = parser.parse_args(arguments)
    name = f"phrasebook-{options.pair}"
    drawn = corpus.load(name, options.split, limit=options.count, seed=options.seed)
    for source, target in drawn.pairs():
        print(source, target, sep="\t")


if __name__ == "__main__":
    main_guard(main)
