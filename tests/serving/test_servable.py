"""How the ops of a request share the machine with those of others."""

import os
import threading

import numpy as np
import pytest

from serving.model_server import servable as servable_module
from serving.model_server.batching import BatchScheduler
from serving.model_server.call import Call
from serving.model_server.config_files import Batching
from serving.model_server.monitoring import Metrics
from serving.model_server.servable import Servable
from serving.model_server.slots import Slots
from tests.serving.conftest import tensor

TOGETHER = Batching(max_batch_size=2, batch_timeout_micros=60_000_000, num_batch_threads=2)


class Recorder:
    """In place of `ModelSession.run`: how many texts, in which thread, of which priority."""

    def __init__(self):
        self.seen = []
        self.gate = threading.Event()

    def __call__(self, signature, inputs, outputs=(), timeout_ms=0, own_thread=False, run_in=None):
        texts = list(inputs["text"].string_val)
        priorities = []

        def run_graph():
            priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

        run_in(run_graph) if run_in else run_graph()
        self.seen.append((len(texts), own_thread, *priorities))
        if b"wait" in texts:
            self.gate.wait(60)
        return {"translation": np.array(texts, object)}


@pytest.fixture
def make(base, monkeypatch):
    """Makes a servable with a recorder as its session's `run`."""
    made = []

    def make(runner):
        servable = Servable("upper", 1, base / "1", Metrics(), runner)
        made.append((servable, runner))
        recorder = Recorder()
        monkeypatch.setattr(servable.session, "run", recorder)
        return servable, recorder

    yield make
    for servable, runner in made:
        if isinstance(runner, BatchScheduler):
            runner.close()
        servable.close()


def ask(servable, *texts):
    found = servable.run("translate", {"text": tensor(list(texts))}, (), Call(120))
    return list(found["translation"])


def in_threads(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("batching", [False, True])
def test_long_texts_run_apart_in_a_thread_that_gives_way(make, monkeypatch, batching):
    monkeypatch.setattr(servable_module, "_CORES", 100)
    servable, recorder = make(BatchScheduler(TOGETHER, Metrics()) if batching else Slots(7))
    long, usual = b"x" * 1001, os.getpriority(os.PRIO_PROCESS, 0)
    answers = []
    for thread in in_threads(
        *(lambda t=t: answers.append(ask(servable, t)) for t in (b"a", long, b"b"))
    ):
        thread.join(60)
    assert sorted(answers) == [[b"a"], [b"b"], [long]]
    short = [(2, False, usual)] if batching else [(1, False, usual)] * 2
    assert sorted(recorder.seen) == sorted([*short, (1, True, usual + 10)])
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == usual


def test_an_error_of_a_long_text_reaches_the_caller(make, monkeypatch):
    servable, _ = make(Slots(1))
    monkeypatch.setattr(servable.session, "run", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask(servable, b"x" * 1001)
    with pytest.raises(ZeroDivisionError):
        ask(servable, b"x")


def test_runs_beside_many_others_keep_to_their_own_thread(make, monkeypatch):
    monkeypatch.setattr(servable_module, "_CORES", 3)
    servable, recorder = make(Slots(7))
    threads = []
    for number in range(1, 5):
        threads += in_threads(lambda: ask(servable, b"wait"))
        while len(recorder.seen) < number:
            threads[-1].join(0.01)
    assert [own for _, own, _ in recorder.seen] == [False, False, True, True]
    recorder.gate.set()
    for thread in threads:
        thread.join(60)
    ask(servable, b"again")
    assert recorder.seen[-1][1] is False


def test_both_kinds_of_run_give_the_same(base):
    servable = Servable("upper", 1, base / "1", Metrics(), Slots(1))
    signature = servable.session.signatures["align"]
    inputs = {"text": tensor(["one two three", "four"])}
    pooled, own = (servable.session.run(signature, inputs, own_thread=t) for t in (False, True))
    for name, expected in pooled.items():
        np.testing.assert_array_equal(own[name], expected)
    servable.close()
