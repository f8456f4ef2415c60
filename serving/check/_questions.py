"""The inputs with which exports are checked, by kind of signature."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.api._histories import TIME, padded_columns
from serving.api._image_files import INPUT as IMAGES
from serving.api._image_files import image_file
from serving.client._protobuf import DTYPES

PREDICT = "tensorflow/serving/predict"
TEXTS = (
    b"She is eating a green apple.",
    "Il n'aime pas les pommes : été.".encode(),
    "他不喜欢苹果。".encode(),
    *(b"a text of " + b"some more " * count + b"words" for count in range(14)),
)
HARD_TEXTS = {
    "an empty text": b"",
    "a text of 2,000 words": b" ".join([b"word"] * 2000),
    "a text that is not UTF-8": b"\xff\xfe invalid \x80 UTF-8",
    "a text with NUL": b"NUL \x00 inside",
    "a short text": b"a short text",
}
_BROKEN_IMAGE = b"a text called .png"
_IMAGE_SIZES = (23, 47, 1), (61, 31, 3), (200, 5, 3), (32, 72, 1), (7, 7, 3), (60, 160, 3)
_EVENTS = 1, 2, 3, 5, 11, 67  # of histories
_HARD_HISTORIES = {
    "a history without events": (0, 1.0),
    "a history of one huge event": (1, 1e28),
    "a history of 97 huge events": (97, 1e28),
    "a history of zeros": (3, 0.0),
}
_OTHER_DIMENSION = 3


class Question(NamedTuple):
    """The rows of one request, and their description for findings.

    `refusal` says whether the model may reject the rows with INVALID_ARGUMENT: None means that it
    must answer, "" that it may reject; with any other text, it must reject with this text in the
    message.
    """

    what: str
    rows: list[Any]
    refusal: str | None = None


def predicting(signatures: dict[str, Any]) -> dict[str, Any]:
    """Return the signatures (`SignatureDef`) that Predict can run, by name."""
    return {
        name: signature
        for name, signature in sorted(signatures.items())
        if not name.startswith("__") and signature.method_name == PREDICT
    }


def _dtype(info: Any) -> np.dtype:
    """Return the NumPy dtype of a `TensorInfo`; strings are objects of bytes."""
    if info.dtype in DTYPES:
        return np.dtype(DTYPES[info.dtype][2])
    import tensorflow as tf  # only SavedModels have such dtypes, as bfloat16

    return np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype)


def _reads_images(signature: Any) -> bool:
    """Return whether the only input of a signature is image files."""
    return set(signature.inputs) == {IMAGES}


def takes_texts(signature: Any) -> bool:
    """Return whether all inputs of a signature are texts, one or several a row."""
    return not _reads_images(signature) and all(
        _dtype(info).kind == "O" for info in signature.inputs.values()
    )


def _takes_histories(signature: Any) -> bool:
    """Return whether a signature takes times and other numbers, each `(B, T)`."""
    infos = signature.inputs.values()
    return TIME in signature.inputs and all(
        _dtype(info).kind == "f" and len(info.tensor_shape.dim) == 2 for info in infos
    )


def is_batched(signature: Any) -> bool:
    """Return whether an input of a signature has a batch axis."""
    shapes = [info.tensor_shape for info in signature.inputs.values()]
    return any(shape.unknown_rank or shape.dim for shape in shapes)


def usual_rows(signature: Any) -> Sequence[Any]:
    """Return typical rows for a signature: images, histories or texts."""
    if _reads_images(signature):
        return _images()
    if _takes_histories(signature):
        return [_history(signature.inputs, count, 3.0) for count in _EVENTS]
    return TEXTS


def questions(signature: Any) -> list[list[Question]]:
    """Return the requests to a signature in groups: single rows, then batches of the same rows.

    A model must answer odd rows, too. It may reject a batch of 0, which no client sends.
    """
    usual = usual_rows(signature)
    if not is_batched(signature):
        return [[Question("a batch of 1", [usual[0]])]]
    names = ["a batch of 1", *(f"row {number} alone" for number in range(1, len(usual)))]
    groups = [_group(dict(zip(names, usual, strict=True)), 3, len(usual))]
    if takes_texts(signature):
        groups += [_group(HARD_TEXTS, len(HARD_TEXTS), kind="odd rows: ")]
    elif _reads_images(signature):
        broken = "a broken image", [usual[0], _BROKEN_IMAGE], f"{IMAGES}[1]"
        groups += [[Question(*broken)]]
    elif _takes_histories(signature):
        inputs, hard = signature.inputs, _HARD_HISTORIES.items()
        odd = {name: _history(inputs, *about) for name, about in hard}
        groups += [_group(odd, len(odd), kind="odd rows: ")]
    return [*groups, [Question("a batch of 0", [], "")]]


def _group(rows: dict[str, Any], *sizes: int, kind: str = "") -> list[Question]:
    """Return a question for each row, and one for a batch of the first rows of each size."""
    batches = [Question(f"{kind}a batch of {size}", [*rows.values()][:size]) for size in sizes]
    return [*(Question(name, [row]) for name, row in rows.items()), *batches]


def _images() -> list[bytes]:
    """Return PNG files of noise, gray and in colour, of several sizes."""
    rng = np.random.default_rng(1)
    return [image_file(rng.integers(0, 256, size).astype("uint8")) for size in _IMAGE_SIZES]


def _history(columns: Sequence[str], count: int, scale: float) -> dict[str, list[float]]:
    """Return a history of `count` events, in which a third of the numbers is missing."""
    rng = np.random.default_rng(count)
    numbers = scale * rng.gamma(1.0, size=(len(columns), count))  # some are logarithms
    numbers[rng.random(numbers.shape) < 1 / 3] = np.nan
    made = {name: row.tolist() for name, row in zip(columns, numbers, strict=True)}
    return {**made, TIME: np.sort(scale * rng.normal(size=count)).tolist()}


def make_inputs(signature: Any, rows: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the inputs `(B, …)` of a signature for B rows: the texts, or numbers drawn by text."""
    if rows and _takes_histories(signature):
        return {name: np.array(x, "float32") for name, x in padded_columns(rows).items()}
    return {alias: _values(alias, info, rows) for alias, info in signature.inputs.items()}


def _values(alias: str, info: Any, rows: Sequence[bytes]) -> np.ndarray:
    dims = [dim.size for dim in info.tensor_shape.dim]
    shape = tuple(_OTHER_DIMENSION if size < 0 else size for size in dims[1:])
    dtype = _dtype(info)
    array = np.zeros((len(rows), *shape), dtype)
    for number, row in enumerate(rows):
        if dtype.kind == "O":
            array[number, ...] = row
            continue
        numbers = np.random.default_rng([*alias.encode(), zlib.crc32(row)]).random(shape)
        # Integers are 0 or 1, ids that every vocabulary has.
        array[number] = numbers if dtype.kind in "fV" else numbers < 0.5
    return array[0, ...] if not dims and not info.tensor_shape.unknown_rank else array
