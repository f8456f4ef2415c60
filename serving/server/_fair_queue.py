"""A fair queue: clients that wait get equal shares of the time that their requests take."""

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_MOST_CLIENTS = 2**12  # whose virtual finish is kept, before those that no longer matter go
_LEARNING_RATE = 1 / 16  # of the mean seconds of a run


class Queued:
    """What waits in a queue, and its client. The queue sets the other attributes."""

    client: Hashable = None
    virtual_arrival = 0.0
    started = 0.0  # seconds


_Q = TypeVar("_Q", bound=Queued)


class FairQueue(Generic[_Q]):
    """Start-time fair queueing of clients, charged for the seconds that their requests took.

    After P. Goyal, H. M. Vin and H. Cheng, "Start-time Fair Queueing: A Scheduling Algorithm for
    Integrated Services Packet Switching Networks", SIGCOMM 1996, section 2: a request has the
    start tag `S = max(v, F)`, where `v` is the virtual time of its arrival and `F` the virtual
    finish of its client's previous request; `F` grows by what a request cost; and the request with
    the earliest start tag runs next. Virtual time is the largest start tag of all runs so far.

    Two things differ. The cost of a run is known only when it ends: before, its client's next
    request is ordered as if the run cost the mean of all runs, or the time since it began if that
    is longer. And each run also advances virtual time by its cost divided by the number of clients,
    as in weighted fair queueing (A. Demers, S. Keshav and S. Shenker, SIGCOMM 1989). Otherwise new
    clients without end, which all begin at the same virtual time, would stop all the older ones.

    The class has no threads and no clock: its caller locks it and says what time it is.
    """

    def __init__(self) -> None:
        self._waiting = dict[Hashable, list[_Q]]()  # by client; no empty lists
        self._running = dict[Hashable, list[_Q]]()
        self._virtual_finish = dict[Hashable, float]()
        self._virtual_time, self._mean_seconds = 0.0, 0.001

    def add(self, request: _Q) -> None:
        is_busy = request.client in self._waiting or request.client in self._running
        request.virtual_arrival = 0.0 if is_busy else self._virtual_time
        self._waiting.setdefault(request.client, []).append(request)

    def remove(self, request: _Q) -> None:
        """Remove a request if it waits. It costs its client nothing."""
        if request in self._waiting.get(request.client, ()):
            _take(self._waiting, request)

    def __len__(self) -> int:
        """Count the requests that wait or run."""
        return sum(map(len, (*self._waiting.values(), *self._running.values())))

    def waiting(self) -> list[_Q]:
        return [request for own in self._waiting.values() for request in own]

    def pop(self, accepts: Callable[[_Q], bool], now: float) -> _Q | None:
        """Remove and return the next request that `accepts` holds for; it begins to run `now`."""
        first, earliest = None, math.inf
        for client, own in self._waiting.items():
            request = next(filter(accepts, own), None)
            if request and (tag := self._start(request) + self._under_way(client, now)) < earliest:
                first, earliest = request, tag
        if first:
            _take(self._waiting, first)
            self._running.setdefault(first.client, []).append(first)
            self._virtual_time = max(self._virtual_time, self._start(first))
            first.started = now
        return first

    def settle(self, request: _Q, seconds: float) -> None:
        """Charge a client for its request, which has ended and took so many seconds."""
        clients, finish = len({*self._waiting, *self._running}), self._virtual_finish
        _take(self._running, request)
        finish[request.client] = self._start(request) + seconds
        self._virtual_time += seconds / clients
        self._mean_seconds += _LEARNING_RATE * (seconds - self._mean_seconds)
        if not self._waiting and not self._running:
            finish.clear()  # all clients are equal after an idle moment
        elif len(finish) > _MOST_CLIENTS:
            later = {client: end for client, end in finish.items() if end > self._virtual_time}
            self._virtual_finish = later

    def _start(self, request: _Q) -> float:
        """Return the start tag of a request, without its client's runs that have not ended."""
        return max(request.virtual_arrival, self._virtual_finish.get(request.client, 0.0))

    def _under_way(self, client: Hashable, now: float) -> float:
        """Return the seconds that a client's runs take that have not ended, as far as known."""
        running = self._running.get(client, ())
        return sum(max(self._mean_seconds, now - request.started) for request in running)


def _take(requests: dict[Hashable, list[_Q]], request: _Q) -> None:
    """Remove a request from the lists by client."""
    own = requests[request.client]
    own.remove(request)
    if not own:
        del requests[request.client]
