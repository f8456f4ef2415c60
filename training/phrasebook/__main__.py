"""Prints pairs of the built-in corpus: source, target, links, sure links, separated by tabs."""

from __future__ import annotations

from training.command.errors import UserError
from training.command.options import main_guard
from training.command.parser import Parser, count
from training.phrasebook import PAIRS, SPLITS, generate


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.phrasebook",
        description=__doc__,
        examples=["--count 10", "--pair en-zh --split train --seed 3 > pairs.tsv"],
    )
    parser.add_argument("--pair", default="en-fr", choices=PAIRS, help="pair of languages")
    parser.add_argument("--split", default="test", choices=SPLITS, help="split of the corpus")
    parser.add_argument(
        "--count", type=count, metavar="N", help="number of pairs; default: the whole split"
    )
    parser.add_argument("--seed", type=count, default=0, metavar="N", help="seed of the draw")
    parser.add_argument(
        "--words", action="store_true", help="add the words of both sides as columns"
    )
    options = parser.parse_args(arguments)
    try:
        pairs = generate(options.pair, options.split, options.count, options.seed)
    except ValueError as error:
        raise UserError(str(error)) from error
    for pair in pairs:
        links, sure = (
            " ".join(f"{i}-{j}" for i, j in sorted(links)) for links in (pair.links, pair.sure)
        )
        columns = [pair.source, pair.target, links, sure]
        if options.words:
            columns += [" ".join(pair.source_words), " ".join(pair.target_words)]
        print("\t".join(columns))


if __name__ == "__main__":
    main_guard(main)
