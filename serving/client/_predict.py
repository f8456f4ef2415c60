"""Predicts an outcome's probability: python -m serving.client predict --model NAME CSV

The table has a row for each visit. `--png FILE` draws the weights of the first id's events.
`--local` runs the model in this process, without a server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from serving.api._printing import print_json, printable
from serving.client._options import Parser, ended, opened_model
from training.command.visible import visible


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    return ended(_ask, _parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    examples = (
        "--model pbcseq visits.csv",
        "--local models/pbcseq/1 --only 17 --png timeline.png visits.csv",
    )
    text = "Says how probable an outcome is after each history in a table."
    png = "draw the first timeline"
    parser = Parser("python -m serving.client predict", text, examples, "histories", "an id", png)
    parser.add_argument("table", metavar="CSV", help="a row for each visit; .gz allowed")
    add = parser.add_argument
    add("--id", default="id", metavar="COLUMN", help="column of ids; default: id")
    add("--time", default="time", metavar="COLUMN", help="column of times; default: time")
    add("--only", action="append", metavar="ID", help="only these ids")
    return parser


def _ask(arguments: argparse.Namespace) -> int:
    from serving.api._histories import TIME, read_table
    from serving.client._drawing import draw_timeline

    table = read_table(arguments.table, arguments.id, arguments.time)
    histories: dict[str, dict[str, list[str]]] = table
    if arguments.only:
        if unknown := [person for person in arguments.only if person not in histories]:
            raise ValueError(f"{arguments.table} has no {arguments.id} {unknown[0]!r}")
        histories = {person: histories[person] for person in arguments.only}
    with opened_model(arguments, "Predictor") as predictor:
        answers = predictor.outcome(list(histories.values()), ignore=True)
        for note in table.notes(predictor.metadata().signatures["predict"]["inputs"]):
            print(f"Warning: {visible(note)}", file=sys.stderr)
    times = {person: [float(time) for time in histories[person][TIME]] for person in histories}
    for person, answer in zip(histories, answers, strict=True):
        if arguments.json:
            print_json(id=person, time=times[person], **asdict(answer))
        else:
            print(f"{answer.probability:.4f}\t{printable(person)}")
    if cut := sum(answer.truncated for answer in answers):
        print(
            f"Warning: {cut} of {len(answers)} histories have more events than the model reads: "
            "their last ones are read, with what was known before",
            file=sys.stderr,
        )
    if arguments.png:
        first = next(iter(histories))
        title = printable(f"{arguments.id} {first}")
        draw_timeline(times[first], answers[0], arguments.png, title)
    return 0
