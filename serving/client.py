"""A thin client of a served translator: grpcio and protobuf, no TensorFlow.

    from serving.client import Translator

    with Translator("localhost:8500", "en-fr", timeout=10) as translator:
        print(translator.translate(["She is eating a green apple."])[0].text)

As a command, with the texts as arguments or as lines of the standard input:

    python -m serving.client --target localhost:8500 --model en-fr [TEXT ...]
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from serving.drawing import draw_alignment
from serving.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServerUnavailableError,
    ServingError,
    SignatureNotFoundError,
    UnexpectedResponseError,
)
from serving.translation import Alignment, Hypothesis, Translation
from serving.translator import AsyncTranslator, Metadata, Tls, Translator

__all__ = [
    "Alignment",
    "AsyncTranslator",
    "DeadlineExceededError",
    "Hypothesis",
    "InvalidRequestError",
    "MessageTooLargeError",
    "Metadata",
    "ModelNotFoundError",
    "ServerUnavailableError",
    "ServingError",
    "SignatureNotFoundError",
    "Tls",
    "Translation",
    "Translator",
    "UnexpectedResponseError",
    "draw_alignment",
]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m serving.client",
        description="Translates texts with a served model.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts; none reads lines of the standard input")
    add("--target", default="localhost:8500", help="host:port of the server, or unix:PATH")
    add("--model", required=True, help="name of the model on the server")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="version of the model; default is the latest")
    which.add_argument("--label", help="label of the version")
    add("--timeout", type=float, default=30.0, help="seconds for each request, retries included")
    add("--retries", type=int, default=2, help="further attempts while the server is unavailable")
    add("--batch-size", type=int, default=32, help="most texts in a request")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--nbest", action="store_true", help="several translations, with scores")
    what.add_argument("--align", action="store_true", help="draw the attention weights")
    what.add_argument("--split", action="store_true", help="translate sentence by sentence")
    what.add_argument("--metadata", action="store_true", help="show the signatures and stop")
    add("--png", type=Path, metavar="FILE", help="with --align: write a heat map (matplotlib)")
    add("--scores", action="store_true", help="print the score before each translation")
    add("--json", action="store_true", help="print one JSON object a text")
    add("--wait-ready", type=float, metavar="SECONDS", help="wait so long for the model first")
    tls = parser.add_argument_group("encrypted connections (PEM files)")
    tls.add_argument("--tls", action="store_true", help="with the system's root certificates")
    tls.add_argument("--tls-roots", type=Path, help="root certificates of the server")
    tls.add_argument("--tls-cert", type=Path, help="the client's certificate")
    tls.add_argument("--tls-key", type=Path, help="the client's private key")
    tls.add_argument("--tls-server-name", help="name in the server's certificate")
    return parser


def _tls(arguments: argparse.Namespace) -> Tls | bool:
    files = (arguments.tls_roots, arguments.tls_cert, arguments.tls_key)
    if arguments.tls or arguments.tls_server_name or any(files):
        return Tls(*files, server_name=arguments.tls_server_name)
    return False


def _print_json(**fields: object) -> None:
    print(json.dumps(fields, ensure_ascii=False))


def _warn_truncated(number: int) -> None:
    print(
        f"warning: text {number} is longer than the model reads; its end is not translated",
        file=sys.stderr,
    )


def _write_png(path: Path, alignment: Alignment) -> None:
    from keras_attention.plot import plot_attention

    plot_attention(
        alignment.source_tokens,
        alignment.target_tokens,
        alignment.attention_weights,
        path=str(path),
    )


def _run(translator: Translator, arguments: argparse.Namespace, texts: list[str]) -> None:
    if arguments.nbest:
        for text, hypotheses in zip(texts, translator.nbest(texts), strict=True):
            if arguments.json:
                found = [dataclasses.asdict(hypothesis) for hypothesis in hypotheses]
                _print_json(source=text, hypotheses=found)
            else:
                print(text)
                for hypothesis in hypotheses:
                    print(f"{hypothesis.score:9.4f}  {hypothesis.text}")
    elif arguments.align:
        for number, alignment in enumerate(translator.align(texts)):
            if arguments.json:
                _print_json(source=texts[number], **dataclasses.asdict(alignment))
            else:
                print(f"{alignment.translation}\n{draw_alignment(alignment)}\n")
            if arguments.png:
                path = arguments.png
                numbered = path.with_stem(f"{path.stem}-{number + 1}") if len(texts) > 1 else path
                _write_png(numbered, alignment)
    else:
        for number, found in enumerate(translator.translate(texts, arguments.split)):
            if arguments.json:
                _print_json(
                    source=texts[number],
                    translation=found.text,
                    score=found.score,
                    truncated=found.truncated,
                )
            else:
                print(f"{found.score:.4f}\t{found.text}" if arguments.scores else found.text)
            if found.truncated:
                _warn_truncated(number + 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Translate; returns the exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.png and not arguments.align:
        parser.error("--png needs --align")
    texts = arguments.texts
    if not texts and not arguments.metadata:
        texts = sys.stdin.read().splitlines()
        if not texts:
            print("error: no text: give it as arguments or on standard input", file=sys.stderr)
            return 1
    try:
        with Translator(
            arguments.target,
            arguments.model,
            version=arguments.version,
            label=arguments.label,
            timeout=arguments.timeout,
            tls=_tls(arguments),
            batch_size=arguments.batch_size,
            retries=arguments.retries,
        ) as translator:
            if arguments.wait_ready is not None:
                translator.wait_ready(arguments.wait_ready)
            if arguments.metadata:
                _print_json(**dataclasses.asdict(translator.metadata()))
            else:
                _run(translator, arguments, texts)
    except (ServingError, OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
