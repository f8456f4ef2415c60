"""A SavedModel as a server's model: signatures as messages, runs in suitable threads."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from google.protobuf.message import Message
from tensorflow.core.protobuf import meta_graph_pb2

from serving.client import protobuf
from serving.savedmodel.op_threads import OpThreads, give_way
from serving.savedmodel.session import ModelSession

_SignatureDef = protobuf.message("SignatureDef", "tensorflow")


class SavedModel:
    """A loaded SavedModel.

    Args:
        path: of the version.
        tags: of the meta graph to load.
        threads: that run the ops.

    Attributes:
        session: that runs it.
        signatures: by name.
        ranks: that inputs must have, by signature and alias.
    """

    def __init__(
        self, path: Path, tags: Sequence[str] = ("serve",), threads: OpThreads | None = None
    ):
        self._threads = threads or OpThreads()
        self.session = ModelSession(path, tags, self._threads.config)
        give_way()
        self.signatures = {
            name: _SignatureDef.FromString(signature.SerializeToString())
            for name, signature in self.session.signatures.items()
        }
        self.ranks = {
            name: _ranks(self.session.meta_graph, signature)
            for name, signature in self.session.signatures.items()
        }

    def run(
        self,
        name: str,
        inputs: Mapping[str, Message],
        outputs: Sequence[str] = (),
        timeout_ms: int = 0,
        slow: bool = False,
    ) -> dict[str, np.ndarray]:
        """Run a signature; see `ModelSession.run`. Raises StatusError.

        Args:
            name: of the signature.
            inputs: TensorProtos by alias.
            outputs: the aliases to return; none means all.
            timeout_ms: DEADLINE_EXCEEDED after so many milliseconds; 0 waits for ever.
            slow: run with low priority.
        """
        signature = self.session.signatures[name]
        with self._threads.pool(slow=slow) as pool:
            return self.session.run(signature, inputs, outputs, timeout_ms, pool)

    def stop(self) -> None:
        """Make running requests fail soon. No others can follow."""
        self.session.stop()

    def close(self) -> None:
        """Free the session."""
        self.session.close()


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
