"""Admission of a request's tensors, before memory is spent on them.

A TensorProto may declare a shape of any size and send one value, which TensorFlow repeats. So
dtype, rank, number of values and rows are compared with the signature before the tensor is made.
"""

import math
from collections.abc import Mapping

from google.protobuf.message import Message

from serving.savedmodel.status import StatusError, invalid
from serving.server.tensors import DTYPES, STRING, name_of, shape_text

# The default limit of rows, which is the stock server's batch size.
MOST_ROWS = 1000
_MOST_DIMENSIONS = 254  # TensorFlow's own limit


def check_inputs(
    inputs: Mapping[str, Message],
    infos: Mapping[str, Message],
    ranks: Mapping[str, int],
    most_rows: int = MOST_ROWS,
) -> int:
    """The number of rows of a request's inputs.

    Args:
        inputs: the tensors, by alias.
        infos: of the signature, for each of them.
        ranks: the ranks that some of them must have.
        most_rows: that a request may have; 0 for any number.

    Raises StatusError INVALID_ARGUMENT for a tensor that does not match the signature, sends too
    few or too many values, or has too many rows. A repeated value counts as a row each time.
    """
    return max(
        (
            _check(alias, number, proto, infos[alias].dtype, ranks.get(alias), most_rows)
            for number, (alias, proto) in enumerate(inputs.items())
        ),
        default=1,
    )


def _check(
    alias: str,
    number: int,
    proto: Message,
    dtype: int,
    rank: int | None,
    most_rows: int,
) -> int:
    if proto.dtype != dtype or dtype not in DTYPES:
        raise invalid(
            f"Expects arg[{number}] to be {name_of(dtype)} but {name_of(proto.dtype)} is provided"
        )
    dims = proto.tensor_shape.dim
    if proto.tensor_shape.unknown_rank or len(dims) > _MOST_DIMENSIONS:
        raise _unreadable(alias)
    shape = [dim.size for dim in dims]
    if any(size < 0 for size in shape):
        raise _unreadable(alias)
    if rank is not None and len(shape) != rank:
        raise invalid(
            f"Shape of tensor {alias} {shape_text(shape)} is not compatible with "
            f"expected shape {shape_text('?' * rank)}."
        )
    declared, rows = math.prod(shape), shape[0] if shape else 1
    if proto.tensor_content:
        if dtype == STRING or len(proto.tensor_content) != declared * DTYPES[dtype].bytes:
            raise _unreadable(alias)
    else:
        sent, rest = divmod(len(getattr(proto, DTYPES[dtype].field)), DTYPES[dtype].each)
        if rest or sent > declared or (declared and not sent):
            raise _unreadable(alias)
        if sent < declared:
            rows = declared
            most_rows = most_rows or MOST_ROWS
    if most_rows and rows > most_rows:
        # The stock server's words for a batch that is too large: clients parse them.
        raise invalid(f"Task size {rows} is larger than maximum input batch size {most_rows}")
    return rows


def _unreadable(alias: str) -> StatusError:
    return invalid(f"tensor parsing error: {alias}")
