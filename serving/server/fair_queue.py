"""A fair queue: clients that wait get equal shares of the time that their requests take."""

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_MOST_CLIENTS = 2**12  # whose virtual finish is kept, before those that no longer matter go
_LEARNING_RATE = 1 / 16  # of the mean seconds of a run


class _Queued(Protocol):
    """What waits in the queue, and its client."""

    client: Hashable


_Q = TypeVar("Q", bound=_Queued)


@dataclass(eq=False)
class _Entry(Generic[_Q]):
    request: _Q
    number: int
    arrived: float  # virtual time
    started: float = 0.0  # seconds


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
        self._waiting: dict[Hashable, list[_Entry[_Q]]] = {}  # by client; no empty lists
        self._running: dict[Hashable, list[_Entry[_Q]]] = {}
        self._virtual_finish: dict[Hashable, float] = {}
        self._virtual_time, self._mean_seconds = 0.0, 0.001
        self._numbers, self._count = itertools.count(), 0

    def add(self, request: _Q) -> None:
        """Add a request to those that wait."""
        client = request.client
        is_busy = client in self._waiting or client in self._running
        arrived = 0.0 if is_busy else self._virtual_time
        entry = _Entry(request, next(self._numbers), arrived)
        self._count += 1
        self._waiting.setdefault(client, []).append(entry)

    def remove(self, request: _Q) -> None:
        """Remove a request if it waits. It costs its client nothing."""
        if _take(self._waiting, request):
            self._count -= 1

    def __len__(self) -> int:
        """Count the requests that wait or run."""
        return self._count

    def waiting(self) -> list[_Q]:
        """Return the requests that wait."""
        return [entry.request for entries in self._waiting.values() for entry in entries]

    def pop(self, accepts: Callable[[_Q], bool], now: float) -> _Q | None:
        """Remove and return the next request that `accepts` holds for; it begins to run `now`."""
        found: tuple[float, int, _Entry[_Q]] | None = None
        for client, entries in self._waiting.items():
            entry = next((entry for entry in entries if accepts(entry.request)), None)
            if entry:
                key = self._start(entry) + self._under_way(client, now), entry.number, entry
                found = min(found or key, key)
        if not found:
            return None
        entry = found[-1]
        _take(self._waiting, entry.request)
        entry.started = now
        self._running.setdefault(entry.request.client, []).append(entry)
        self._virtual_time = max(self._virtual_time, self._start(entry))
        return entry.request

    def settle(self, request: _Q, seconds: float) -> None:
        """Charge a client for its request, which has ended and took so many seconds."""
        clients, entry = len({*self._waiting, *self._running}), _take(self._running, request)
        assert entry  # because it runs
        finish, self._count = self._virtual_finish, self._count - 1
        finish[request.client] = self._start(entry) + seconds
        self._virtual_time += seconds / clients
        self._mean_seconds += _LEARNING_RATE * (seconds - self._mean_seconds)
        if not self._waiting and not self._running:
            finish.clear()  # all clients are equal after an idle moment
        elif len(finish) > _MOST_CLIENTS:
            later = {c: end for c, end in finish.items() if end > self._virtual_time}
            self._virtual_finish = later

    def _start(self, entry: _Entry[_Q]) -> float:
        """Return the start tag of a request, without its client's runs that have not ended."""
        return max(entry.arrived, self._virtual_finish.get(entry.request.client, 0.0))

    def _under_way(self, client: Hashable, now: float) -> float:
        """Return the seconds that a client's runs take that have not ended, as far as known."""
        running = self._running.get(client, ())
        return sum(max(self._mean_seconds, now - each.started) for each in running)


def _take(entries: dict[Hashable, list[_Entry[_Q]]], request: _Q) -> _Entry[_Q] | None:
    """Remove the entry of a request and return it, None if there is none."""
    own = entries.get(request.client, [])
    for entry in own:
        if entry.request is request:
            own.remove(entry)
            if not own:
                del entries[request.client]
            return entry
    return None
