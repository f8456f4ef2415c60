"""A SavedModel as a server's model: signatures as messages, runs with a limit of time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from google.protobuf.message import Message
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from serving.client import serving_pb2
from serving.savedmodel.session import ModelSession


class SavedModel:
    """A loaded SavedModel.

    Args:
        path: of the version.
        inter_op: threads that run ops; 0 for the number of cores.
        intra_op: threads for the parts of one op; 0 for the number of cores.

    Attributes:
        signatures: by name.
        ranks: that inputs must have, by signature and alias.
    """

    def __init__(self, path: Path, inter_op: int = 0, intra_op: int = 0):
        config = config_pb2.ConfigProto(
            inter_op_parallelism_threads=inter_op, intra_op_parallelism_threads=intra_op
        )
        # Idle threads that spin would take cores from the threads that send answers.
        config.experimental.disable_thread_spinning = True
        self._session = ModelSession(path, config=config)
        self.signatures = {
            name: serving_pb2.SignatureDef.FromString(signature.SerializeToString())
            for name, signature in self._session.signatures.items()
        }
        self.ranks = {
            name: _ranks(self._session.meta_graph, signature)
            for name, signature in self._session.signatures.items()
        }

    def run(
        self, name: str, inputs: Mapping[str, Message], outputs: Sequence[str], seconds: float
    ) -> dict[str, np.ndarray]:
        """Run a signature within a time; see `ModelSession.run`. Raises StatusError."""
        signature = self._session.signatures[name]
        return self._session.run(signature, inputs, outputs, max(1, int(seconds * 1000)))

    def stop(self) -> None:
        """Make running requests fail soon. No others can follow."""
        self._session.stop()

    def close(self) -> None:
        """Free the session."""
        self._session.close()


def _ranks(
    meta_graph: meta_graph_pb2.MetaGraphDef, signature: meta_graph_pb2.SignatureDef
) -> dict[str, int]:
    """Ranks that inputs must have: those that feed a placeholder of known rank.

    A signature may also feed a computed tensor; other ranks may fit there.
    """
    placeholders = {
        node.name for node in meta_graph.graph_def.node if node.op.startswith("Placeholder")
    }
    return {
        alias: len(info.tensor_shape.dim)
        for alias, info in signature.inputs.items()
        if info.HasField("tensor_shape")
        and not info.tensor_shape.unknown_rank
        and info.name.partition(":")[0] in placeholders
    }
