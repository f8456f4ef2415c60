"""Loads and runs a SavedModel through TensorFlow's C++ loader, as TensorFlow Serving does.

`tf.saved_model.load` rebuilds Python objects and accepts SavedModels that the C++ loader rejects.
This module therefore uses TensorFlow's C API: it loads with `TF_LoadSessionFromSavedModel` and runs
with `TF_SessionRun`. Calls release the GIL. Importing this module registers the ops of
tensorflow_text.
"""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers its ops in the process)
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from serving.api._export_files import check_saved_model
from serving.loaded._status import Code, StatusError, Waiting, deadline_exceeded, invalid


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("free", ctypes.c_void_p))


class _Output(ctypes.Structure):
    _fields_ = (("operation", ctypes.c_void_p), ("index", ctypes.c_int))


_TSTRING_BYTES = 24
_ROWS = 64  # of a part of an expensive run; between parts it may stop, or others run


def _bind() -> ctypes.CDLL:
    """Return TensorFlow's C library with the types of its functions declared."""
    # `import tensorflow` has loaded this library, so op registry and kernels are the same.
    name = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
    library = ctypes.CDLL(str(Path(tf.__file__).with_name(name)))
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    buffer, outputs = ctypes.POINTER(_Buffer), ctypes.POINTER(_Output)
    signatures = {
        "TF_NewStatus": (pointer,),
        "TF_DeleteStatus": (None, pointer),
        "TF_GetCode": (number, pointer),
        "TF_Message": (ctypes.c_char_p, pointer),
        "TF_NewBuffer": (buffer,),
        "TF_DeleteBuffer": (None, buffer),
        "TF_NewBufferFromString": (buffer, ctypes.c_char_p, size),
        "TF_NewGraph": (pointer,),
        "TF_DeleteGraph": (None, pointer),
        "TF_GraphOperationByName": (pointer, pointer, ctypes.c_char_p),
        "TF_OperationNumOutputs": (number, pointer),
        "TF_NewSessionOptions": (pointer,),
        "TF_DeleteSessionOptions": (None, pointer),
        "TF_SetConfig": (None, pointer, ctypes.c_char_p, size, pointer),
        "TF_LoadSessionFromSavedModel": (
            pointer,
            *(pointer, buffer, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)),
            *(number, pointer, buffer, pointer),
        ),
        "TF_CloseSession": (None, pointer, pointer),
        "TF_DeleteSession": (None, pointer, pointer),
        "TF_SessionRun": (
            None,
            *(pointer, buffer),
            *(outputs, ctypes.POINTER(pointer), number),
            *(outputs, ctypes.POINTER(pointer), number),
            *(pointer, number, buffer, pointer),
        ),
        "TF_AllocateTensor": (pointer, number, ctypes.POINTER(ctypes.c_int64), number, size),
        "TF_DeleteTensor": (None, pointer),
        "TF_TensorFromProto": (None, buffer, pointer, pointer),
        "TF_TensorType": (number, pointer),
        "TF_NumDims": (number, pointer),
        "TF_Dim": (ctypes.c_int64, pointer, number),
        "TF_TensorByteSize": (size, pointer),
        "TF_TensorData": (pointer, pointer),
        "TF_StringGetSize": (size, pointer),
        "TF_StringGetDataPointer": (pointer, pointer),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_tf = _bind()


def _checked(function: Any, *arguments: Any) -> Any:
    """Return the result of a C API function whose last parameter is a TF_Status.

    Raises StatusError if the status is not OK.
    """
    status = _tf.TF_NewStatus()
    try:
        result, code = function(*arguments, status), Code(_tf.TF_GetCode(status))
        if code is not Code.OK:
            message = _tf.TF_Message(status).decode("utf-8", "replace")
            raise StatusError(code, message.partition("\n")[0])  # the rest names nodes
        return result
    finally:
        _tf.TF_DeleteStatus(status)


def _tensor_from_array(array: npt.ArrayLike) -> int:
    """Return a new TF_Tensor with the values of an array; strings are an object array of bytes."""
    serialized = tf.make_tensor_proto(array).SerializeToString()
    tensor = _tf.TF_AllocateTensor(tf.float32.as_datatype_enum, None, 0, 4)
    buffer = _tf.TF_NewBufferFromString(serialized, len(serialized))
    try:
        _checked(_tf.TF_TensorFromProto, buffer, tensor)
    except StatusError:
        _tf.TF_DeleteTensor(tensor)
        raise
    finally:
        _tf.TF_DeleteBuffer(buffer)
    return tensor


def _array_from_tensor(tensor: int) -> np.ndarray:
    """Return a copy of a TF_Tensor as an array; strings become an object array of bytes."""
    number = _tf.TF_TensorType(tensor)
    shape = [_tf.TF_Dim(tensor, axis) for axis in range(_tf.TF_NumDims(tensor))]
    data = _tf.TF_TensorData(tensor)
    if number != types_pb2.DT_STRING:
        if number in (types_pb2.DT_VARIANT, types_pb2.DT_RESOURCE):
            name = tf.dtypes.as_dtype(number).name
            raise invalid(f"a {name} tensor cannot be fetched: return dense tensors")
        raw = ctypes.string_at(data, _tf.TF_TensorByteSize(tensor)) if data else b""
        return np.frombuffer(raw, tf.dtypes.as_dtype(number).as_numpy_dtype).reshape(shape)
    count = int(np.prod(shape))
    strings = np.empty(count, object)
    for index in range(count):
        string = data + index * _TSTRING_BYTES
        strings[index] = ctypes.string_at(
            _tf.TF_StringGetDataPointer(string), _tf.TF_StringGetSize(string)
        )
    return strings.reshape(shape)


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays `(B_i, …)` joined along the batch, the other axes padded to the largest.

    The padding is b"" or 0, as in exports.
    """
    shape = sum(map(len, arrays)), *np.max([array.shape[1:] for array in arrays], axis=0)
    dtype, start = arrays[0].dtype, 0
    joined = np.full([int(size) for size in shape], b"" if dtype.kind == "O" else 0, dtype)
    for array in arrays:
        joined[(slice(start, start + len(array)), *map(slice, array.shape[1:]))] = array
        start += len(array)
    return joined


class ModelSession:
    """A loaded SavedModel: its `meta_graph` with the tag `serve`, its `signatures` by name.

    Raises StatusError if the loader rejects it. Use as a context manager, or call `close()`.
    """

    def __init__(self, export_dir: str | Path):
        self._session = None
        try:
            # In exports of this project, a row does not depend on other rows: a run may be split.
            self._may_split_rows = check_saved_model(Path(export_dir))
        except ValueError as error:
            raise StatusError(Code.DATA_LOSS, str(error)) from None
        self._outputs: dict[str, _Output] = {}
        self._lock = threading.Lock()
        self._graph = _tf.TF_NewGraph()
        options, meta_graph = _tf.TF_NewSessionOptions(), _tf.TF_NewBuffer()
        # Idle threads that spin would take cores from the threads that send responses.
        config = config_pb2.ConfigProto()
        config.experimental.disable_thread_spinning = True
        # Operations queue for the threads of a pool. Cheap runs use pool 0, expensive ones pool 1.
        for _ in range(2):
            config.session_inter_op_thread_pool.add()
        serialized = config.SerializeToString()
        tags = (ctypes.c_char_p * 1)(b"serve")
        try:
            _checked(_tf.TF_SetConfig, options, serialized, len(serialized))
            path = str(export_dir).encode()
            asked = options, None, path, tags, len(tags), self._graph, meta_graph
            self._session = _checked(_tf.TF_LoadSessionFromSavedModel, *asked)
            self.meta_graph = meta_graph_pb2.MetaGraphDef.FromString(
                ctypes.string_at(meta_graph.contents.data, meta_graph.contents.length)
            )
        except StatusError:
            _tf.TF_DeleteGraph(self._graph)
            raise
        finally:
            _tf.TF_DeleteBuffer(meta_graph)
            _tf.TF_DeleteSessionOptions(options)
        self.signatures = dict(self.meta_graph.signature_def)

    def run(
        self, name: str, inputs: Mapping[str, npt.ArrayLike], call: Waiting | None = None
    ) -> dict[str, np.ndarray]:
        """Run a signature; return all of its outputs by alias.

        For each set of outputs, TensorFlow would spend seconds to prepare another graph, and keep
        it.

        Args:
            name: of the signature.
            inputs: an array, or nested lists, for every input.
            call: the request, whose time limits the run; None means no limit. An expensive call of
                an export of this project runs in parts of `_ROWS` rows.

        Raises StatusError with TensorFlow's status, DEADLINE_EXCEEDED when the time is over.
        """
        if call is None or not call.is_expensive or not self._may_split_rows:
            return self._run(name, inputs, call)
        arrays = {alias: np.asarray(array) for alias, array in inputs.items()}
        parts = [
            self._run(name, {a: x[start : start + _ROWS] for a, x in arrays.items()}, call)
            for start in range(0, max(map(len, arrays.values())) or 1, _ROWS)
        ]
        return {alias: _joined([part[alias] for part in parts]) for alias in parts[0]}

    def _run(
        self, name: str, inputs: Mapping[str, npt.ArrayLike], call: Waiting | None
    ) -> dict[str, np.ndarray]:
        seconds = call.seconds_left() if call else 0.0
        if call and not seconds:
            raise deadline_exceeded()
        signature = self.signatures[name]
        aliases = list(signature.outputs)
        feeds = (_Output * len(inputs))(
            *(self._output(signature.inputs[alias].name) for alias in inputs)
        )
        fetches = (_Output * len(aliases))(
            *(self._output(signature.outputs[alias].name) for alias in aliases)
        )
        results = (ctypes.c_void_p * len(aliases))()
        tensors: list[int] = []
        run_options = None
        try:
            for array in inputs.values():
                tensors.append(_tensor_from_array(array))
            if call:
                # A run in parts takes the thread of its caller, which has a lower priority.
                in_parts = call.is_expensive and self._may_split_rows
                limit = config_pb2.RunOptions(
                    timeout_in_ms=max(1, int(seconds * 1000)),
                    inter_op_thread_pool=-1 if in_parts else int(call.is_expensive),
                )
                options = limit.SerializeToString()
                run_options = _tf.TF_NewBufferFromString(options, len(options))
            _checked(
                *(_tf.TF_SessionRun, self._session, run_options),
                *(feeds, (ctypes.c_void_p * len(tensors))(*tensors), len(tensors)),
                *(fetches, results, len(aliases)),
                *(None, 0, None),
            )
            return {
                alias: _array_from_tensor(result)
                for alias, result in zip(aliases, results, strict=True)
            }
        finally:
            for tensor in (*tensors, *results):
                if tensor:
                    _tf.TF_DeleteTensor(tensor)
            if run_options:
                _tf.TF_DeleteBuffer(run_options)

    def stop(self) -> None:
        """Make running requests fail as CANCELLED before their next op. No more runs can follow."""
        with self._lock:
            if self._session:
                with contextlib.suppress(StatusError):
                    _checked(_tf.TF_CloseSession, self._session)

    def close(self) -> None:
        """Free the session and the graph. Call it only when no run is under way or will follow."""
        with self._lock:
            session, self._session = self._session, None
        if session is None:
            return
        for end in (_tf.TF_CloseSession, _tf.TF_DeleteSession):
            with contextlib.suppress(StatusError):  # the graph is freed anyway
                _checked(end, session)
        _tf.TF_DeleteGraph(self._graph)

    def _output(self, name: str) -> _Output:
        """Return the TF_Output of a tensor `operation:index`. Raises StatusError if unknown."""
        output = self._outputs.get(name)
        if output is None:
            operation, _, index = name.partition(":")
            handle = _tf.TF_GraphOperationByName(self._graph, operation.encode())
            number = int(index or 0)
            if not handle or number >= _tf.TF_OperationNumOutputs(handle):
                raise invalid(f"no tensor {name} in the graph")
            output = self._outputs[name] = _Output(handle, number)
        return output

    def __enter__(self) -> "ModelSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
