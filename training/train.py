"""Train a model: python -m training.train --preset NAME."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
from contextlib import ExitStack, nullcontext, redirect_stdout
from pathlib import Path

from training.command._workers import Worker
from training.command.errors import ConfigError, UsageError
from training.command.native import chosen_backend, has_packages, need, start_tensorflow
from training.command.options import Parser, going_on, main_guard, positive_int
from training.config._keys import is_unicode
from training.config.schema import changeable_keys
from training.presets._arguments import add_configuration, default_output
from training.presets._options import configuration
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
    limit = "GPUs to use on each machine; default: all. TensorFlow and JAX can use several"
    parser.add_argument("--devices", type=positive_int, metavar="N", help=limit)
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        if not is_unicode(str(value)):
            option = f"--{name.replace('_', '-')}"
            raise UsageError.expected(option, "text in Unicode", ascii(str(value)))
    worker = Worker.here(chosen_backend())
    with ExitStack() as stack:
        if worker.number:  # the first process prints for all
            nothing = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nothing))
        _train(options, worker)


def _train(options: argparse.Namespace, worker: Worker) -> None:
    if options.resume:
        output = _to_resume(options)
        config = RunFiles(output).begun(options.settings)
    else:
        if options.init and not RunFiles(options.init).best.is_file():
            raise ConfigError(
                f"{options.init} is not a trained run. Give --init a directory that training.train "
                "wrote, such as runs/mine"
            )
        output = options.output or default_output(options)
        # fails if another process holds the run or it is not writable
        with nullcontext() if worker.number else RunFiles(output).locked():
            if not worker.number:
                RunFiles(output).check_free()
            config = configuration(options)
    without_texts = options.resume and not has_packages("training")
    if without_texts:
        RunFiles(output).check_prepared()
    else:
        need("training", any_backend=True)
    if options.dry_run and worker.number:
        return
    with going_on(lambda: _how_to_go_on(RunFiles(output))):
        if importlib.util.find_spec("tensorflow"):
            start_tensorflow()
        from training.fit.devices._joining import joined

        if options.dry_run:
            from training.runs._start import preview

            preview(config, options.init)
            return
        with joined(options.devices) as processes:
            from training.model.seq2seq import check_attention

            processes.check_batch_size(config)
            check_attention(config)  # now, because reading the data takes long
            if without_texts:
                from training.fit._prepared import train_prepared

                train_prepared(output, options.settings, processes)
            elif options.resume:
                from training.fit._train import resume

                resume(output, options.settings, options.force, processes)
            else:
                from training.fit._train import train

                train(config, output, options.init, processes)
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
