"""Requests of several clients run together, as TensorFlow Serving's batching session does.

Each set of tensors that requests feed and fetch has a queue. A thread takes a batch that is full or
has waited long enough. The threads serve the queues of all models in turn.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field

import numpy as np

from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.call import Call
from serving.server.config_files import Batching
from serving.server.monitoring import Metrics

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays, float | None], Arrays]


@dataclass(eq=False)
class _Task:
    inputs: Arrays
    size: int
    call: Call
    enqueued: float
    done: Future[Arrays]


@dataclass(eq=False)
class _Batch:
    opened: float
    tasks: list[_Task] = field(default_factory=list)
    size: int = 0


@dataclass(eq=False)
class _Queue:
    run: Run
    batches: deque[_Batch] = field(default_factory=deque)


class BatchScheduler:
    """Threads that run batches."""

    def __init__(self, parameters: Batching, metrics: Metrics):
        self._parameters = parameters
        self._metrics = metrics
        self._changed = threading.Condition()
        self._queues: OrderedDict[Hashable, _Queue] = OrderedDict()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"batch-{number}", daemon=True)
            for number in range(parameters.num_batch_threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, key: Hashable, run: Run, inputs: Arrays, call: Call) -> Arrays:
        """Run `inputs` in a batch with others of the same `key`.

        Args:
            key: of the model and signature; requests with the same key have the same `run`.
            run: runs a batch (inputs, seconds left or None for ever).
            inputs: arrays whose first dimension is the rows.
            call: the request; a cancelled or late one is not run.

        Returns the rows that belong to `inputs`. Raises StatusError: INVALID_ARGUMENT for inputs
        that cannot be batched, UNAVAILABLE if the queue is full, DEADLINE_EXCEEDED, CANCELLED.
        """
        size = _rows(inputs)
        if size > self._parameters.max_batch_size:
            raise invalid(
                f"Task size {size} is larger than maximum input batch size "
                f"{self._parameters.max_batch_size}",
            )
        task = _Task(inputs, size, call, time.monotonic(), Future())
        kind = (key, self._kind(inputs))
        self._enqueue(kind, run, task)
        call.when_cancelled(lambda: self._forget(kind, task))
        try:
            return task.done.result(timeout=call.seconds_left)
        except FutureTimeoutError:
            if not task.done.cancel():
                # It is running, and the caller may free the model when this returns.
                wait([task.done])
            raise _deadline_exceeded() from None
        except CancelledError:
            call.check()
            raise _deadline_exceeded() from None

    def _kind(self, inputs: Arrays) -> Hashable:
        """Requests of one kind can share a batch."""
        padded = self._parameters.pad_variable_length_inputs
        shapes = (array.ndim if padded else array.shape[1:] for array in inputs.values())
        dtypes = (array.dtype.str for array in inputs.values())
        return (*dtypes, *shapes)

    def _enqueue(self, key: Hashable, run: Run, task: _Task) -> None:
        limit = self._parameters.max_batch_size
        with self._changed:
            if self._closed:
                raise StatusError(Code.UNAVAILABLE, "The server is shutting down")
            queue = self._queues.setdefault(key, _Queue(run))
            if not queue.batches or queue.batches[-1].size + task.size > limit:
                if len(queue.batches) >= self._parameters.max_enqueued_batches:
                    raise StatusError(
                        Code.UNAVAILABLE,
                        "The batch scheduling queue to which this task was submitted is full",
                    )
                queue.batches.append(_Batch(task.enqueued))
            batch = queue.batches[-1]
            batch.tasks.append(task)
            batch.size += task.size
            self._changed.notify()

    def _forget(self, key: Hashable, task: _Task) -> None:
        """Remove an abandoned task from its queue, so that it takes no place there."""
        task.done.cancel()
        with self._changed:
            queue = self._queues.get(key)
            if queue is None:
                return
            for batch in list(queue.batches):
                if task in batch.tasks:
                    batch.tasks.remove(task)
                    batch.size -= task.size
                    if not batch.tasks:
                        queue.batches.remove(batch)
            if not queue.batches:
                del self._queues[key]

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        with self._changed:
            return sum(len(b.tasks) for q in self._queues.values() for b in q.batches)

    def close(self) -> None:
        """Run all queued batches, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            _process(*taken, self._parameters, self._metrics)

    def _take(self) -> tuple[Run, _Batch] | None:
        """Wait for the next batch that is due; None once closed and empty."""
        wait = self._parameters.batch_timeout_micros / 1e6
        with self._changed:
            while True:
                now = time.monotonic()
                due = None
                for key, queue in self._queues.items():
                    first = queue.batches[0]
                    full = first.size >= self._parameters.max_batch_size
                    if full or len(queue.batches) > 1 or self._closed or now >= first.opened + wait:
                        batch = queue.batches.popleft()
                        # The queues take turns.
                        self._queues.move_to_end(key)
                        if not queue.batches:
                            del self._queues[key]
                        return queue.run, batch
                    left = first.opened + wait - now
                    due = left if due is None else min(due, left)
                if self._closed:
                    return None
                self._changed.wait(due)


def _process(run: Run, batch: _Batch, parameters: Batching, metrics: Metrics) -> None:
    now = time.monotonic()
    tasks = []
    for task in batch.tasks:
        metrics.observe("batching_session:queuing_latency", now - task.enqueued)
        if task.call.seconds_left == 0:
            task.done.cancel()
        elif task.done.set_running_or_notify_cancel():
            tasks.append(task)
    if not tasks:
        return
    try:
        results = _run(run, tasks, parameters)
    except Exception as error:
        if len(tasks) == 1:
            tasks[0].done.set_exception(error)
            return
        # One request's error must not fail the others.
        for task in tasks:
            try:
                task.done.set_result(_run(run, [task], parameters)[0])
            except Exception as own_error:
                task.done.set_exception(own_error)
        return
    for task, result in zip(tasks, results, strict=True):
        task.done.set_result(result)


def _run(run: Run, tasks: Sequence[_Task], parameters: Batching) -> list[Arrays]:
    times = [task.call.seconds_left for task in tasks]
    known = [seconds for seconds in times if seconds is not None]
    left = max(known) if len(known) == len(times) else None
    if left == 0:
        raise _deadline_exceeded()
    inputs = _merge([task.inputs for task in tasks], parameters)
    return _split(run(inputs, left), tasks, _rows(inputs))


def _deadline_exceeded() -> StatusError:
    return StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")


def _rows(inputs: Arrays) -> int:
    sizes = {array.shape[:1] for array in inputs.values()}
    if () in sizes or not sizes:
        raise invalid("Batching Run() input tensors must have at least one dimension")
    if len(sizes) > 1:
        raise invalid(
            "Batching Run() input tensors must have equal 0th-dimension size",
        )
    return sizes.pop()[0]


def _merge(requests: Sequence[Arrays], parameters: Batching) -> Arrays:
    """One batch of all requests, filled up to an allowed size with copies of a row."""
    merged = {}
    for alias in requests[0]:
        arrays = [request[alias] for request in requests]
        if len({array.shape[1:] for array in arrays}) > 1:
            widest = np.max([array.shape[1:] for array in arrays], axis=0)
            arrays = [_padded(array, widest) for array in arrays]
        merged[alias] = np.concatenate(arrays)
    size = _rows(merged)
    wanted = next((allowed for allowed in parameters.allowed_batch_sizes if allowed >= size), size)
    if size and wanted > size:
        # A copy of a row is a valid row.
        merged = {
            alias: np.concatenate([array, np.repeat(array[-1:], wanted - size, axis=0)])
            for alias, array in merged.items()
        }
    return merged


def _padded(array: np.ndarray, shape: np.ndarray) -> np.ndarray:
    if not array.size:
        return np.zeros((len(array), *shape), array.dtype)
    widths = [(0, wide - size) for wide, size in zip(shape, array.shape[1:], strict=True)]
    return np.pad(array, [(0, 0), *widths], constant_values=array.flat[0])


def _split(outputs: Arrays, tasks: Sequence[_Task], size: int) -> list[Arrays]:
    for array in outputs.values():
        if array.ndim == 0:
            raise StatusError(Code.FAILED_PRECONDITION, "Batched output tensor has 0 dimensions")
        if array.shape[0] != size:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                "dimension sizes of the input tensors",
            )
    ends = np.cumsum([task.size for task in tasks])
    return [
        {alias: array[end - task.size : end] for alias, array in outputs.items()}
        for task, end in zip(tasks, ends, strict=True)
    ]
