"""The threads that run the ops of graphs.

A request that runs alone uses the shared pool: independent ops run at once, which is fastest.
Beside others, its ops would wait for theirs and move from thread to thread, so it borrows a thread
of its own. To TensorFlow these are pools of one thread; all sessions of the process share them by
name. Their ops stop at a deadline; ops of a run in the calling thread would not.
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
    """The threads of a server's sessions.

    Args:
        shared: threads of the shared pool; 0 for the number of cores.
        intra_op: threads for the parts of one op; 0 for the number of cores.

    Attributes:
        config: of such a session.
    """

    def __init__(self, shared: int = 0, intra_op: int = 0):
        self._lock, self._running = threading.Lock(), 0
        self.config = config_pb2.ConfigProto(intra_op_parallelism_threads=intra_op)
        # Idle threads that spin would take cores from the threads that send answers.
        self.config.experimental.disable_thread_spinning = True
        pools = self.config.session_inter_op_thread_pool
        pools.add(num_threads=shared, global_name=f"shared-{shared}")
        for number in range(1, 1 + USUAL + SLOW):
            pools.add(num_threads=1, global_name=f"lent-{number}")

    @contextlib.contextmanager
    def pool(self, *, slow: bool = False) -> Iterator[int]:
        """The number of the pool for a run: the shared one, or beside others one of its own.

        Args:
            slow: take a thread of low priority in any case.
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

    They run ops alone: a thread of low priority that runs Python would hold the interpreter's lock.
    Outside Linux threads have no priority, and nothing happens.
    """
    if sys.platform != "linux":
        return
    names = {f"tf_Compute{number}" for number in _SLOW_POOLS}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text().strip() in names:
                os.setpriority(os.PRIO_PROCESS, int(task.name), _NICENESS)
