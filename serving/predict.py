"""Says how probable an outcome is, with a served model: python -m serving.predict --model M CSV

The table has a row for each visit. With `--png FILE` the weights of the first id's events are
drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from serving.client.errors import ServingError
from serving.client.histories import TIME, read_table
from serving.client.options import add_connection, connection_options
from serving.client.readers import Predictor
from training.command.parser import Parser, file_to_write


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m serving.predict",
        description="Says how probable an outcome is after each history in a table.",
    )
    parser.add_argument("table", metavar="CSV", help="a row for each visit; .gz allowed")
    add_connection(parser, "histories")
    parser.add_argument("--id", default="id", metavar="COLUMN", help="whose each row is")
    parser.add_argument("--time", default="time", metavar="COLUMN", help="when it was")
    parser.add_argument("--only", action="append", metavar="ID", help="these ids alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object an id")
    parser.add_argument("--png", type=file_to_write, metavar="FILE", help="draw the first timeline")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Predict; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        found = read_table(arguments.table, arguments.id, arguments.time)
        if arguments.only:
            if unknown := [person for person in arguments.only if person not in found]:
                raise ValueError(f"{arguments.table} has no {arguments.id} {unknown[0]!r}")
            found = {person: found[person] for person in arguments.only}
        with Predictor(**connection_options(arguments)) as predictor:
            if arguments.wait_ready is not None:
                predictor.wait_ready(arguments.wait_ready)
            answers = predictor.outcome(list(found.values()), ignore=True)
        for person, answer in zip(found, answers, strict=True):
            if arguments.json:
                print(
                    json.dumps(
                        {
                            "id": person,
                            "probability": answer.probability,
                            "time": [float(time) for time in found[person][TIME]],
                            "attention_weights": answer.attention_weights,
                        }
                    )
                )
            else:
                print(f"{answer.probability:.4f}\t{person}")
        if arguments.png:
            from serving.client.overlays import draw_timeline

            first = next(iter(found))
            times = [float(time) for time in found[first][TIME]]
            draw_timeline(times, answers[0], arguments.png, f"{arguments.id} {first}")
    except (ServingError, OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
