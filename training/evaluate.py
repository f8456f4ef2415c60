"""Score one run, or an ensemble of several: python -m training.evaluate --run DIR."""

from __future__ import annotations

import argparse

from training.command.errors import UserError
from training.command.native import need, start_tensorflow
from training.command.options import SEARCH, Parser, add_options, file_to_write, main_guard
from training.data.read._specs import Spec
from training.data.read.texts import Texts, check_split
from training.runs.files import RunFiles
from training.sources.kinds import check_data


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.evaluate",
        description="Score a run, or an ensemble of several. The last line is a JSON object.",
        examples=[
            "--run runs/cmudict",
            "--run runs/a --run runs/b --data tsv:test.tsv --bootstrap --output scores.json",
        ],
    )
    add_options(parser, "--run")
    scored = "corpus or files to score; files are read whole; default: the run's own"
    parser.add_argument("--data", metavar="DATA", help=scored)
    parser.add_argument("--split", default="test", metavar="NAME", help="split of the corpus")
    add_options(parser, *SEARCH, "--batch-size", "--precision", "--limit", "--lowercase")
    files = {
        "--hypotheses": "write the translations",
        "--errors": "write a table of source, reference, output and the probability of its least "
        "probable token, the wrong ones first",
        "--output": "write the JSON",
    }
    for name, meaning in files.items():
        parser.add_argument(name, type=file_to_write, metavar="FILE", help=meaning)
    parser.add_argument("--bootstrap", action="store_true", help="add 95 %% confidence intervals")
    options = parser.parse_args(arguments)
    _check(options)
    need("training")
    start_tensorflow()
    from training.score._evaluation import report

    report(options)


def _check(options: argparse.Namespace) -> None:
    """Raise a UserError if the options do not fit the runs; TensorFlow is not imported yet."""
    from training.decode.settings import SearchSettings

    runs = [RunFiles(path).trained() for path in options.runs]
    settings, config = SearchSettings.of(options), runs[0].config
    if config.target == "label":
        for name in ("hypotheses", "errors", "lowercase", "replace_unknown"):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise UserError(
                    f"{option} needs runs that write texts, but these predict an outcome. "
                    f"Remove {option}"
                )
    else:
        settings.check(runs)
    spec = options.data or config.data
    if options.data and Spec.of(spec).is_file and options.split != "test":
        raise UserError(
            f"A file has no splits: {spec} is scored as a whole. Remove --split {options.split}"
        )
    check_data(config.source, spec, options.split)
    if not options.data and config.source == "text":
        check_split(Texts.of(config), options.split)


if __name__ == "__main__":
    main_guard(main)
