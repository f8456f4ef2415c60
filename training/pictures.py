"""Write images of a task, and what they say: python -m training.pictures digits --output DIR."""

from __future__ import annotations

import argparse
from pathlib import Path

from training.cli import main_guard, positive_int
from training.data import captchas, digits
from training.data.generated import write_folder


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m training.pictures",
        description="Write images and their labels.tsv, which `images:DIR` reads as data.",
    )
    parser.add_argument("task", choices=("digits", "captcha"))
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--count", type=positive_int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    if options.task == "digits":
        made = digits.make(options.count, options.seed, test=True)
    else:
        made = captchas.make(options.count, options.seed)
    write_folder(made, options.output)
    print(f"Wrote {options.count} images and labels.tsv to {options.output}")


if __name__ == "__main__":
    main_guard(main)
