"""Export a run, or an ensemble, to a SavedModel or ONNX: python -m serving.export --run DIR."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from serving.api._export_files import ONNX_MANIFEST, SAVED_MANIFEST
from training.command.native import need, start_tensorflow
from training.command.options import (
    SEARCH,
    Parser,
    add_options,
    folder_to_write,
    main_guard,
    positive_int,
)
from training.command.progress import stages
from training.runs.files import RunFiles

_OLD_NAME = "--no-tables"  # of --small


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = _parser()
    arguments = sys.argv[1:] if arguments is None else arguments
    if _OLD_NAME in arguments:
        print(f"note: {_OLD_NAME} is now --small", file=sys.stderr)
    options = parser.parse_args(["--small" if x == _OLD_NAME else x for x in arguments])
    if options.weights == "int8" and options.format != "onnx":
        parser.error("--weights int8 needs --format onnx")
    if options.small and options.format != "onnx":
        parser.error("--small needs --format onnx")
    if options.num_results is None:
        options.num_results = min(5, options.beam_width)
    if options.num_results > options.beam_width:
        parser.error(
            f"--nbest needs at most --beam-width, {options.beam_width}, but it is "
            f"{options.num_results}"
        )
    for name, least in (("precision", "float32"), ("coverage_penalty", 0.0)):
        if options.format == "onnx" and (value := getattr(options, name)) != least:
            option = f"--{name.replace('_', '-')}"
            parser.error(f"--format onnx needs {option} {least}, but it is {value}")
    from training.decode.settings import SearchSettings

    search = SearchSettings.of(options, options.num_results)
    search.check([RunFiles(path).trained() for path in options.runs])
    need("serving")
    start_tensorflow()  # which takes seconds
    from serving.export._version import export
    from training.runs.run import load_ensemble

    with stages("loading the run") as tell:
        version = export(
            load_ensemble(options.runs),
            options.output,
            tell=tell,
            form=options.format,
            weights=options.weights,
            tables=not options.small,
            **{**vars(search), "max_source_length": options.max_source_length},
        )
    print(f"Exported {version}")
    manifest = version / (ONNX_MANIFEST if options.format == "onnx" else SAVED_MANIFEST)
    if agreement := json.loads(manifest.read_text(encoding="utf-8")).get("agreement"):
        products = options.weights if options.format == "onnx" else options.precision
        print(f"With {options.weights} weights and {products} products, {_described(agreement)}")


def _described(agreement: dict[str, float]) -> str:
    """Return a line that compares the export's answers with answers in float32."""
    if "histories" in agreement:
        return (
            f"the probabilities of {agreement['histories']} histories differ from those in float32 "
            f"by at most {agreement['probability_difference']:.2g}"
        )
    return (
        f"{agreement['same']} of {agreement['texts']} answers are the same as in float32; scores "
        f"differ by at most {agreement['score_difference']:.2g}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m serving.export",
        description="Export a run, or an ensemble of several, as a new version of a model.",
        examples=(
            "--run runs/mine --output models/mine",
            "--run runs/mine --output models/mine-onnx --format onnx --weights int8",
        ),
    )
    add_options(parser, "--run")
    add = parser.add_argument
    text = "the model's base path; a new version is a directory in it"
    add("--output", required=True, metavar="models/NAME", type=folder_to_write, help=text)
    add_options(parser, *SEARCH, "--precision")
    number: dict[str, Any] = {"type": positive_int, "metavar": "N"}
    text = "translations of the signature nbest; default: 5, or the beam's width"
    add("--nbest", dest="num_results", help=text, **number)
    add("--max-source-length", default=256, help="tokens after which a text is cut", **number)
    text = (
        "onnx runs without TensorFlow: python -m serving.client translate --local models/NAME/1. "
        "It has no --coverage-penalty and no --precision"
    )
    add("--format", choices=("savedmodel", "onnx"), default="savedmodel", help=text)
    text = "with --format onnx: int8 computes products in eight bits; a quarter of the size"
    add("--weights", choices=("float32", "int8"), default="float32", help=text)
    text = (
        "with --format onnx: store embeddings and kernels instead of tables of their products. "
        "The file is several times smaller, for a page that is downloaded, and a little slower"
    )
    add("--small", action="store_true", help=text)
    return parser


if __name__ == "__main__":
    main_guard(main)
