"""Uses a model on a server, or without one: python -m serving.client translate, read, predict."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

_PROGRAM = "python -m serving.client"
_COMMANDS = {
    "translate": ("serving.client._translate", "translate texts, or write a lexicon of a voice"),
    "read": ("serving.client._read", "read the text in images"),
    "predict": ("serving.client._predict", "predict an outcome from histories in a table"),
}
_USAGE = f"""usage: {_PROGRAM} COMMAND [ARGUMENT ...]

Each command has a --help of its own. All take --model NAME of a server, or --local DIR without one:

""" + "".join(f"  {name:11}{about}\n" for name, (_, about) in _COMMANDS.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0 if words else 2
    if words[0] not in _COMMANDS:  # the only command was to translate
        return run_as("translate", words, _PROGRAM)
    return _run(*words)


def run_as(command: str, argv: Sequence[str] | None, old: str) -> int:
    """Run a command by its old name, after a note about the new name; return the exit status."""
    print(f"note: {old} is now {_PROGRAM} {command}", file=sys.stderr)
    return _run(command, *(sys.argv[1:] if argv is None else argv))


def _run(command: str, *arguments: str) -> int:
    module, _ = _COMMANDS[command]
    status: int = importlib.import_module(module).main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
