"""The weights file of an ONNX folder, which its graphs share."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx

from serving.portable.read._manifest import WEIGHTS

_ALIGNMENT = 4096  # of pages, so that a file can be mapped


class Constants:
    """Large arrays of a folder's graphs; equal arrays are stored once."""

    def __init__(self) -> None:
        self._protos: dict[bytes, onnx.TensorProto] = {}
        self._arrays: list[tuple[int, np.ndarray]] = []
        self._end = 0

    def add(self, array: np.ndarray) -> onnx.TensorProto:
        """Return a tensor that refers to the array's place in the file."""
        array = np.ascontiguousarray(array)
        digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).digest()
        if digest in self._protos:
            return self._protos[digest]
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self._end = start + array.nbytes
        self._arrays.append((start, array))
        proto = onnx.TensorProto(
            name=f"weight_{len(self._protos)}",
            data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        for key, value in (("location", WEIGHTS), ("offset", start), ("length", array.nbytes)):
            proto.external_data.add(key=key, value=str(value))
        return self._protos.setdefault(digest, proto)

    def save(self, folder: Path) -> None:
        with (folder / WEIGHTS).open("wb") as file:
            for start, array in self._arrays:
                file.seek(start)
                file.write(array.tobytes())
