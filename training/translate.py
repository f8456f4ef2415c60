"""Translate line by line: python -m training.translate --run DIR < source > target."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.command.errors import UsageError
from training.command.native import need, start_tensorflow
from training.command.options import SEARCH, Parser, add_options, main_guard, positive_int
from training.command.progress import progress
from training.data.read._files import decoded
from training.data.read._pairs import MOST_UNREADABLE
from training.data.rules import clean
from training.runs.files import RunFiles

if TYPE_CHECKING:
    from training.decode.texts import Translation


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.translate",
        description="Translate files, or standard input, line by line to standard output. An empty "
        "line stays empty. On a terminal each line is translated at once.",
        examples=["--run runs/NAME < source.txt > target.txt", "--run runs/NAME --nbest 5"],
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="default: standard input"
    )
    add_options(parser, "--run", *SEARCH, "--batch-size")
    several = "N translations of a line, the best first, each after the line's number and a TAB"
    parser.add_argument("--nbest", type=positive_int, metavar="N", help=several)
    options = parser.parse_args(arguments)
    count = options.nbest or 1
    if count > options.beam_width:
        raise UsageError.expected("--nbest", f"at most --beam-width, {options.beam_width}", count)
    from training.decode.settings import SearchSettings

    settings = SearchSettings.of(options, count)
    settings.check([RunFiles(path).trained() for path in options.runs])
    texts = [_lines(path.read_bytes(), path) for path in options.files]
    need("training")
    start_tensorflow()
    from training.decode.texts import make_nbest, say_cut
    from training.runs.run import load_translators

    runs = load_translators(options.runs)
    translate = make_nbest(runs, settings, options.batch_size)
    if not options.files and sys.stdin.isatty():
        print("Type a line to translate it. End with Ctrl-D.", file=sys.stderr)
        for number, line in enumerate(sys.stdin, 1):
            text = clean(line)
            say_cut(runs[0], [text], settings)
            _write(translate([text]), options, number)
        return
    lines = [line for text in texts for line in text]
    if not options.files:
        lines = _lines(sys.stdin.buffer.read(), "standard input")
    say_cut(runs[0], lines, settings)
    with progress(len(lines), "lines") as advance:
        translations = translate(lines, advance)
    _write(translations, options)


def _lines(data: bytes, name: str | Path) -> list[str]:
    """Return the lines of a file as training reads them; print a note if few are not UTF-8."""
    lines = data.split(b"\n")
    texts = [line.decode(errors="replace") for line in lines]
    wrong = [n for n, line in enumerate(lines, 1) if texts[n - 1].encode() != line]
    if len(wrong) <= MOST_UNREADABLE * len(lines):
        data = "\n".join(texts).encode()
        for number in wrong:
            print(
                f"Warning: {name}, line {number} is not UTF-8: \ufffd replaces the wrong bytes",
                file=sys.stderr,
            )
    text = decoded(data, name)
    return [clean(line) for line in text.removesuffix("\n").split("\n")] if text else []


def _write(
    translations: Sequence[Sequence[Translation]], options: argparse.Namespace, first: int = 1
) -> None:
    """Print the translations of lines; `first` is the number of the first line."""
    for number, nbest in enumerate(translations, first):
        for translation in nbest:
            columns = [str(number)] if options.nbest else []
            print("\t".join([*columns, translation.text]))
    sys.stdout.flush()


if __name__ == "__main__":
    main_guard(main)
