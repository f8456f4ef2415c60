"""Train a model: python -m training.train --preset NAME."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from training.command.errors import ConfigError, UsageError
from training.command.native import need, start_tensorflow
from training.command.options import Parser, going_on, main_guard
from training.config.keys import is_unicode
from training.config.schema import changeable_keys
from training.presets.options import add_configuration, configuration, default_output
from training.runs.files import RunFiles, summary


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m training.train",
        description="Train an encoder-decoder with attention. The last line is a JSON object: the "
        "epoch that\nis kept.",
        examples=[
            "--preset phrasebook-en-fr",
            "--data tsv:pairs.tsv --output runs/mine --set epochs=20 --set dropout=0.3",
        ],
    )
    add_configuration(parser)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="the run; default: runs/ and the preset's name"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in --output from its last epoch, with its own settings; --set "
        f"changes some from now on: {', '.join(changeable_keys())}",
    )
    recognised = "print what is recognised in the data and which settings are chosen, then stop"
    parser.add_argument("--dry-run", action="store_true", help=recognised)
    parser.add_argument("--init", type=Path, metavar="RUN", help="fine-tune from this run")
    changed = "resume even if the sentences of the corpus have changed"
    parser.add_argument("--force", action="store_true", help=changed)
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        if not is_unicode(str(value)):
            option = f"--{name.replace('_', '-')}"
            raise UsageError.expected(option, "text in Unicode", ascii(str(value)))
    if options.resume:
        output = _to_resume(options)
        RunFiles(output).begun(options.settings)
    else:
        if options.init and not RunFiles(options.init).best.is_file():
            raise ConfigError(
                f"{options.init} is not a trained run. Give --init a directory that training.train "
                "wrote, such as runs/mine"
            )
        output = options.output or default_output(options)
    with RunFiles(output).locked():  # fails if another process holds it or it is not writable
        if not options.resume:
            RunFiles(output).check_free()
            config = configuration(options)
    need("training", "; training.train_arrays trains on it")
    with going_on(lambda: _how_to_go_on(RunFiles(output))):
        start_tensorflow()
        from training.fit.train import resume, train
        from training.runs.start import preview

        if options.dry_run:
            preview(config, options.init)
            return
        if options.resume:
            resume(output, options.settings, options.force)
        else:
            train(config, output, init=options.init)
    print(json.dumps(summary(RunFiles(output))))


def _how_to_go_on(files: RunFiles) -> str:
    """Return the message after Ctrl-C: how to resume the run."""
    if not files.config.is_file():
        return "the run had not started. Give the same command again"
    run = shlex.quote(str(files.path))
    return f"continue with python -m training.train --resume --output {run}"


def _to_resume(options: argparse.Namespace) -> Path:
    """Return the directory of the run to resume."""
    for name in ("init", "data", "dev", "test", "dry_run"):
        if getattr(options, name):
            option = name.replace("_", "-")
            kept = "tokenizers and weights" if name == "init" else "data"
            if name == "dry_run":
                raise UsageError("--resume has no choices to show. Remove --dry-run")
            raise UsageError(f"A resumed run keeps its own {kept}. Remove --{option}")
    if options.output and options.preset:
        raise UsageError(
            "A resumed run keeps its settings. Remove --preset; to change one, add --set KEY=VALUE"
        )
    if not options.output and not options.preset:
        raise UsageError(
            "Which run should continue? Give its directory: --resume --output runs/NAME"
        )
    return options.output or default_output(options)


if __name__ == "__main__":
    main_guard(main)
