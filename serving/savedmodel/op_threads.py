"""The threads that run the ops of graphs.

In the pool that all requests share, ops that do not need each other run at once: the fastest way
for a request that is alone. Beside others its ops would wait for theirs, and be handed from thread
to thread, so it is lent a thread for itself. TensorFlow knows these as pools of one thread, which
all sessions of the process share by their names. Unlike the ops of a run in the calling thread,
theirs are stopped at a deadline.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, LifoQueue

from tensorflow.core.protobuf import config_pb2

USUAL = 64  # threads that are lent, each to one run at a time
SLOW = max(1, (os.cpu_count() or 1) // 2)  # the same, of low priority

_CORES = os.cpu_count() or 1
_SHARED = 0
_NICENESS = 10
_SLOW_POOLS = range(1 + USUAL, 1 + USUAL + SLOW)
_free: dict[bool, LifoQueue[int]] = {False: LifoQueue(), True: LifoQueue()}
for _number in range(USUAL, 0, -1):
    _free[False].put(_number)
for _number in _SLOW_POOLS:
    _free[True].put(_number)


class OpThreads:
    """How the sessions of a server run ops.

    Args:
        shared: threads of the pool that all requests share; 0 for as many as there are cores.
        intra_op: threads for the parts of one op; 0 for as many as there are cores.

    Attributes:
        config: of a session that runs its ops so.
    """

    def __init__(self, shared: int = 0, intra_op: int = 0):
        self._lock, self._running = threading.Lock(), 0
        self.config = config_pb2.ConfigProto(intra_op_parallelism_threads=intra_op)
        # Threads that have nothing to run would keep the cores from those that hand answers over.
        self.config.experimental.disable_thread_spinning = True
        pools = self.config.session_inter_op_thread_pool
        pools.add(num_threads=shared, global_name=f"shared-{shared}")
        for number in range(1, 1 + USUAL + SLOW):
            pools.add(num_threads=1, global_name=f"lent-{number}")

    @contextlib.contextmanager
    def pool(self, *, slow: bool = False) -> Iterator[int]:
        """The number of the pool for a run: that of a thread of its own beside others.

        Args:
            slow: of a thread of low priority, whatever else runs.
        """
        with self._lock:
            self._running += not slow
            crowded = self._running >= _CORES
        number, free = _SHARED, _free[slow]
        if slow or crowded:
            with contextlib.suppress(Empty):
                number = free.get_nowait()
        try:
            yield number
        finally:
            if number != _SHARED:
                free.put(number)
            with self._lock:
                self._running -= not slow


def give_way() -> None:
    """Give the slow threads their low priority, once a session has made them.

    Ops alone run in them, never Python: a thread that gives way while it runs Python keeps all
    others from it. Where threads have no priority of their own, as outside Linux, nothing happens.
    """
    if sys.platform != "linux":
        return
    names = {f"tf_Compute{number}" for number in _SLOW_POOLS}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text().strip() in names:
                os.setpriority(os.PRIO_PROCESS, int(task.name), _NICENESS)
