"""Reads and checks the manifest of an ONNX export, and the files that it names.

An export may come from an untrusted source: every value that is read must have the expected type
and range. A name of a file must be plain, without a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.api._arguments import shown
from serving.api._export_files import ONNX_MANIFEST as MANIFEST
from serving.api._export_files import check_sum, file_in, read_json
from training.data.letters import known_in

FORMAT = "onnx"
WEIGHTS = "weights.bin"
_MOST_TOKENIZER_BYTES = 2**28
_MOST_GRAPH_BYTES = 2**31
_MOST_NUMBER = 1e6
_KINDS = frozenset(("sentencepiece", "words", "characters", "letters", "symbols"))
_COUNT = range(1, 2**31)
# The expected form of a value: a type, a set of choices, a range of integers, a list with the form
# of its items, or a dict of forms. A key that ends in "?" may be absent; "*" matches every key.
_TOKENIZER = {"kind": _KINDS, "file": str, "size": range(5, 2**31), "inside": str}
_GRAPH = {"outputs": dict}
_CLASSES = dict.fromkeys(("letters", "spaces", "ideographs"), ((range(0x110000),),))
_STATES = {"memory": [str], "state": [str]}
_SEARCH = {
    "beam_width": _COUNT,
    "length_penalty": float,
    "num_results?": _COUNT,
    "replaces_unknown?": bool,
}
_SPELLING = {
    **{"whole": _COUNT, "window": _COUNT, "context": range(2**31), "fewest": float},
    "tag?": {**dict.fromkeys(("open", "close", "space"), range(2**31)), "longest": _COUNT},
}
_EXPECTED: dict[str, dict[str, Any]] = {
    "translate": {
        "attends": bool,
        "spelling?": _SPELLING,
        "copies?": bool,
        "sentences?": bool,
        "settings": {**_SEARCH, "max_source_length": _COUNT, "target_bound?": [float]},
        "graphs": {**dict.fromkeys(("encoder", "step", "translator"), _GRAPH), **_STATES},
        "tokenizers": {"*": _TOKENIZER, "source": _TOKENIZER, "target": _TOKENIZER},
        "source?": {},
    },
    "read": {
        "attends": bool,
        "settings": _SEARCH,
        "graphs": {**dict.fromkeys(("encoder", "step", "reader"), _GRAPH), **_STATES},
        "tokenizers": {"*": _TOKENIZER, "target": _TOKENIZER},
        "source": {
            **dict.fromkeys(("height", "width"), range(1, 2**13)),
            "channels": range(1, 4),
            "regions": [_COUNT],
        },
        "runs": [{"config": {"max_target_length": _COUNT}}],
    },
    "predict": {
        "attends": bool,
        "graphs": {"predictor": _GRAPH},
        "source": {"columns": [str], "log?": [str], "max_events?": _COUNT},
        "tokenizers?": {"*": _TOKENIZER},
    },
}
# Axes of the outputs that models read.
RANKS = {
    "translator": {"found": 3, "scores": 2, "weights": 4, "log_probs": 3},
    "reader": {"found": 3, "scores": 2, "weights": 4, "log_probs": 3},
    "step": {"log_probs": 2},
    "predictor": {"probability": 1},
}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an export, after checking every part that models read.

    Raises ValueError with a one-line message that names the file if a check fails.
    """
    path = folder / MANIFEST
    manifest = read_json(folder, MANIFEST)
    kind = manifest.get("format") if isinstance(manifest, dict) else None
    if kind != FORMAT:
        raise ValueError(
            f"{folder} is no ONNX export: its format is {shown(kind)}. Export with --format onnx"
        )
    _check(path, "task", manifest.get("task"), frozenset(_EXPECTED))
    _check(path, "", manifest, {"files?": {"*": str}})
    expected = _EXPECTED[manifest["task"]]
    _check(path, "", manifest, expected)
    graphs, source = manifest["graphs"], manifest.get("source", {})
    if "step" in graphs:
        wanted = {*graphs["memory"], *graphs["state"]} - graphs["encoder"]["outputs"].keys()
        wanted |= {f"next_{name}" for name in graphs["state"]} - graphs["step"]["outputs"].keys()
        if wanted:
            raise ValueError(f"{path} has no output {min(wanted)} of a graph")
    spelling = manifest.get("spelling", {"window": 1, "context": 0})
    if spelling["window"] <= 2 * spelling["context"]:
        raise _wrong(
            path, "spelling.window", "more than twice spelling.context", spelling["window"]
        )
    if len(source.get("regions", [0, 0])) != 2:
        raise _wrong(path, "source.regions", "two numbers", source["regions"])
    bound = manifest.get("settings", {}).get("target_bound", [2, 10])
    if len(bound) != 2 or min(bound) < 0:
        raise _wrong(path, "settings.target_bound", "two numbers of at least 0", bound)
    if "time" not in source.get("columns", ["time"]):
        raise ValueError(f"{path} has no time in source.columns")
    sums = manifest.get("files", {})
    files = {f"{name}.onnx": _MOST_GRAPH_BYTES for name, x in graphs.items() if isinstance(x, dict)}
    if WEIGHTS in sums or (folder / WEIGHTS).is_symlink() or (folder / WEIGHTS).exists():
        files[WEIGHTS] = _MOST_GRAPH_BYTES
    tokenizers = manifest.get("tokenizers", {}).values()
    files |= {tokenizer["file"]: _MOST_TOKENIZER_BYTES for tokenizer in tokenizers}
    for name, most in files.items():
        if "/" in name:
            raise ValueError(f"{path} expected names of files. Received: {shown(name)}")
        file = file_in(folder, name, most)
        if name in sums:
            check_sum(file, sums[name])
    return manifest


def has_sentences(manifest: Mapping[str, Any]) -> bool:
    """Return whether the sources of a translator are sentences.

    Older exports do not say so: their sources are sentences unless tokens are letters or symbols.
    """
    source = manifest["tokenizers"].get("source", {})
    found: bool = manifest.get("sentences", source.get("kind") in ("sentencepiece", "words"))
    return found


def read_vocabulary(folder: Path, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked state of a tokenizer that is a list of tokens.

    `tokenizer` is its entry in the manifest. Raises ValueError with a one-line message that names
    the file if a check fails.
    """
    path = folder / tokenizer["file"]
    state = read_json(folder, tokenizer["file"], _MOST_TOKENIZER_BYTES)
    expected: dict[str, Any] = {"kind": frozenset([tokenizer["kind"]]), "tokens": [str]}
    expected |= {"copies?": bool, "cases?": {"*": str}, "known?": [str], "wholes?": [str]}
    _check(path, "", state, expected)
    if tokenizer["kind"] == "words":
        _check(path, "characters", state.get("characters"), _CLASSES)
        for name in _CLASSES:
            if not all(len(run) == 2 and run[0] <= run[1] for run in state["characters"][name]):
                raise ValueError(f"{path} expected first and last of each run of characters")
    if (size := len(state["tokens"]) + 4) != tokenizer["size"]:
        raise ValueError(f"{path} expected {tokenizer['size']} tokens. Received: {size}")
    known = known_in(state)
    names = ("kind", "tokens", "copies", "cases", "characters")
    found = {name: state[name] for name in names if name in state}
    return found if known is None else {**found, "known": known}


def _check(path: Path, name: str, value: Any, expected: Any) -> None:
    """Raise ValueError if the value `name` of a file does not have the form `expected`."""
    match expected:
        case dict():
            if not isinstance(value, dict):
                raise _wrong(path, name, "a dict", value)
            for key, part in expected.items():
                for own in value if key == "*" else [key.removesuffix("?")]:
                    if own in value:
                        _check(path, f"{name}.{own}".lstrip("."), value[own], part)
                    elif not key.endswith("?"):
                        raise ValueError(f"{path} has no {f'{name}.{own}'.lstrip('.')}")
        case range():
            if isinstance(value, bool) or not isinstance(value, int) or value not in expected:
                limits = f"{expected.start} to {expected.stop - 1}"
                raise _wrong(path, name, f"a whole number of {limits}", value)
        case [part]:
            if not isinstance(value, list):
                raise _wrong(path, name, "a list", value)
            for item in value:
                _check(path, name, item, part)
        case frozenset():
            if not isinstance(value, str) or value not in expected:
                raise _wrong(path, name, " or ".join(sorted(expected)), value)
        case _ if expected is float:
            number = not isinstance(value, bool) and isinstance(value, int | float)
            if not number or not abs(value) <= _MOST_NUMBER:
                raise _wrong(path, name, f"a number up to {_MOST_NUMBER:g}", value)
        case _:
            if not isinstance(value, expected):
                raise _wrong(path, name, f"a {expected.__name__}", value)


def _wrong(path: Path, name: str, expected: str, value: Any) -> ValueError:
    where = f"{name} as " if name else ""
    return ValueError(f"{path} expected {where}{expected}. Received: {shown(value)}")
