"""The command keras-attention: `keras-attention COMMAND …` runs `python -m MODULE …`."""

from __future__ import annotations

import difflib
import importlib.metadata
import runpy
import sys

from serving.api._printing import not_installed

COMMANDS = {
    "train": ("training.train", "train a model"),
    "evaluate": ("training.evaluate", "score a run on a corpus"),
    "translate": ("training.translate", "translate lines with a run"),
    "presets": ("training.presets", "list presets and corpora"),
    "phrasebook": ("training.phrasebook", "print sentences of the built-in corpus"),
    "pictures": ("training.pictures", "write images of digits or CAPTCHAs, with their texts"),
    "prepare": ("training.prepare", "write token ids, to train later, also without TensorFlow"),
    "export": ("serving.export", "make a SavedModel of a run, or ONNX"),
    "check": ("serving.check", "check that a SavedModel can be served, an ONNX export used"),
    "server": ("serving.server", "serve exports"),
    "client": ("serving.client", "translate, read or predict with a served model, or --local"),
    "batch": ("serving.batch", "translate files of any size"),
    "page": ("serving.page", "show a served model in the browser"),
    "demo": ("serving.demo", "all of it, on texts, images, histories or pronunciations"),
}
OLD_NAMES = {
    "read": "serving.read",
    "predict": "serving.predict",
    "train-arrays": "training.train_arrays",
}
EXTRAS = {"client", "page"}  # commands with an extra of their own name; others use their package's
OURS = {module.split(".")[0] for module, _ in COMMANDS.values()} | {"keras_attention"}
WIDTH = max(map(len, COMMANDS)) + 2
USAGE = """usage: keras-attention COMMAND [ARGUMENT ...]

Each command has a --help of its own; --version prints the version:

""" + "".join(f"  {name:{WIDTH}}{about}\n" for name, (_, about) in COMMANDS.items())


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the first argument names, with the remaining arguments."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        raise SystemExit(0 if arguments else 2)
    name, *rest = arguments
    if name == "--version":
        print(f"keras-attention {importlib.metadata.version('keras-attention-rnn')}")
        return
    if name not in COMMANDS.keys() | OLD_NAMES.keys():
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        print(f"error: {name} is no command; {hint}", file=sys.stderr)
        raise SystemExit(2)
    module = OLD_NAMES[name] if name in OLD_NAMES else COMMANDS[name][0]
    sys.argv = [name, *rest]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in OURS:
            raise
        extra = name if name in EXTRAS else module.split(".")[0].rpartition("_")[2]
        raise SystemExit(f"error: {not_installed(missing, extra)}") from None


if __name__ == "__main__":
    main()
