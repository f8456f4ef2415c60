"""How the ops of a request share the machine with those of others."""

import contextlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.savedmodel import op_threads
from serving.savedmodel.model import SavedModel
from serving.savedmodel.op_threads import SLOW, USUAL, OpThreads
from serving.server.batching import BatchScheduler
from serving.server.call import Call
from serving.server.config_files import Batching
from serving.server.monitoring import Metrics
from serving.server.servable import Batchers, Servable
from serving.server.workers import HeavyError
from tests.serving.conftest import tensor
from tests.serving.test_versions import eventually

TOGETHER = Batching(max_batch_size=2, batch_timeout_micros=60_000_000, num_batch_threads=2)


class Recorder:
    """In place of `ModelSession.run`: how many texts, and in which pool."""

    def __init__(self):
        self.seen = []
        self.gate = threading.Event()

    def __call__(self, signature, inputs, outputs=(), timeout_ms=0, pool=0):
        texts = list(inputs["text"].string_val)
        self.seen.append((len(texts), pool))
        if b"wait" in texts:
            self.gate.wait(60)
        return {"translation": np.array(texts, object)}


@pytest.fixture
def make(base, monkeypatch):
    """Makes a servable with a recorder as its session's `run`."""
    made = []

    def make(batchers=None):
        servable = Servable("upper", 1, SavedModel(base / "1"), Metrics(), batchers)
        made.append(servable)
        recorder = Recorder()
        monkeypatch.setattr(servable.model.session, "run", recorder)
        return servable, recorder

    yield make
    for servable in made:
        for batcher in servable._batchers or ():
            batcher.close()
        servable.close()


def ask(servable, *texts):
    call = Call(120)
    call.apart = True
    found = servable.run("translate", {"text": tensor(list(texts))}, (), call)
    return list(found["translation"])


def in_threads(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def task_of(pool):
    """The task of a pool of one thread."""
    (found,) = (
        task
        for task in Path("/proc/self/task").iterdir()
        if (task / "comm").read_text().strip() == f"tf_Compute{pool}"
    )
    return found


@pytest.mark.parametrize("batching", [False, True])
def test_long_texts_run_apart_in_a_thread_that_gives_way(make, monkeypatch, batching):
    monkeypatch.setattr(op_threads, "_CORES", 100)
    # A run that another test has left may have the thread a little longer.
    eventually(lambda: not op_threads._free[True].empty())
    one_at_a_time = replace(TOGETHER, batch_timeout_micros=0)
    batchers = Batchers(*(BatchScheduler(each, Metrics()) for each in (TOGETHER, one_at_a_time)))
    servable, recorder = make(batchers if batching else None)
    long = b"x" * 1001
    answers = []
    for thread in in_threads(
        *(lambda t=t: answers.append(ask(servable, t)) for t in (b"a", long, b"b"))
    ):
        thread.join(60)
    assert sorted(answers) == [[b"a"], [b"b"], [long]]
    short = [(2, 0)] if batching else [(1, 0)] * 2
    assert sorted(recorder.seen) == sorted([*short, (1, USUAL + 1)])


def test_slow_threads_have_a_low_priority_and_run_the_ops(base):
    model = SavedModel(base / "1")
    usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    signature = model.session.signatures["translate"]
    for pool, niceness in ((1, usual), (USUAL, usual), (USUAL + 1, 10)):
        task = task_of(pool)
        assert os.getpriority(os.PRIO_PROCESS, int(task.name)) == niceness
        turns = [int((task / "schedstat").read_text().split()[2])]
        model.session.run(signature, {"text": tensor(["one"])}, pool=pool)
        turns.append(int((task / "schedstat").read_text().split()[2]))
        assert turns[0] < turns[1]
    model.close()


def test_an_error_of_a_long_text_reaches_the_caller(make, monkeypatch):
    servable, _ = make()
    monkeypatch.setattr(servable.model.session, "run", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask(servable, b"x" * 1001)
    with pytest.raises(ZeroDivisionError):
        ask(servable, b"x")


def test_runs_beside_many_others_keep_to_their_own_thread(make, monkeypatch):
    monkeypatch.setattr(op_threads, "_CORES", 3)
    servable, recorder = make()
    threads = []
    for number in range(1, 5):
        threads += in_threads(lambda: ask(servable, b"wait"))
        while len(recorder.seen) < number:
            threads[-1].join(0.01)
    first, second, *others = [pool for _, pool in recorder.seen]
    assert first == second == 0
    assert len(set(others)) == 2
    assert all(0 < pool <= USUAL for pool in others)
    recorder.gate.set()
    for thread in threads:
        thread.join(60)
    ask(servable, b"again")
    assert recorder.seen[-1][1] == 0


def test_runs_beyond_the_threads_share_a_pool(monkeypatch):
    monkeypatch.setattr(op_threads, "_CORES", 0)
    threads = OpThreads()
    with contextlib.ExitStack() as stack:
        lent = [stack.enter_context(threads.pool()) for _ in range(USUAL + 2)]
        assert sorted(lent) == [0, 0, *range(1, USUAL + 1)]
        with threads.pool(slow=True) as slow:
            assert USUAL < slow <= USUAL + SLOW
    with threads.pool() as again:
        assert again in lent  # they are given back
        assert again > 0


@pytest.mark.parametrize("texts", [[b"x" * 1001], [b"x"] * 33])
def test_a_heavy_request_is_not_run_where_light_ones_are(make, texts):
    servable, recorder = make()
    with pytest.raises(HeavyError):
        servable.run("translate", {"text": tensor(texts)}, (), Call(120))
    assert recorder.seen == []


def test_all_pools_give_the_same(base):
    model = SavedModel(base / "1")
    signature = model.session.signatures["align"]
    inputs = {"text": tensor(["one two three", "four"])}
    shared, *others = (
        model.session.run(signature, inputs, pool=pool) for pool in (0, 1, USUAL + 1)
    )
    for found in others:
        for name, expected in shared.items():
            np.testing.assert_array_equal(found[name], expected)
    model.close()
