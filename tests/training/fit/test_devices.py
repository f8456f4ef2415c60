"""Training on two devices or in two processes of TensorFlow, compared with training on one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from tests.training.conftest import TINY, tiny_config
from training.command._workers import Worker
from training.command.errors import UserError
from training.fit._train import train
from training.fit.devices import _on_tensorflow as on_tensorflow

# Prints, for each case, losses of all steps, weights, and copies of weights that differ.
SCRIPT = """
import json, re, sys
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from training.config.schema import Config
from training.data.batches._batches import Batches
from training.data.batches._plan import Batching
from training.data.tokens.store import Sequences
from training.fit import _optimizer as optimizer
from training.fit.devices._joining import joined
from training.sources.image._source import Images

sizes = dict(batch_size=22, epochs=2, warmup_steps=2, learning_rate=0.05, dropout=0.0)
units = dict(embedding_size=3, readout_units=3, attention_units=11, decoder_units=7)
recurrent = dict(encoder="simple_rnn", bidirectional=False, encoder_units=5)
lengths = dict(max_source_length=16, max_target_length=15)
text = dict(sizes, **units, **recurrent, **lengths, decoder="simple_rnn")
image = dict(source="image", image_height=12, image_width=18, convolutions="3:2x2 5:2x2")
CASES = {
    "text": dict(text, coverage_loss=0.5, label_smoothing=0.1),
    "odd": dict(text, batch_tokens=131),
    "twice": dict(text, r_drop=1.0, attention="general"),
    "bfloat16": dict(text, precision="mixed_bfloat16"),
    "float16": dict(text, precision="mixed_float16"),
    "xla": dict(text, jit_compile=True, batch_shapes=1),
    "image": dict(image, **sizes, **units, max_target_length=15, decoder="simple_rnn"),
    "events": dict(source="events", **sizes, **recurrent, attention_units=11, max_events=9),
    "dropout": dict(text, dropout=0.5),
}
LARGEST = 0.05  # norm of a column of the first weight, which is larger at first


def sequences(rng, count):
    lengths = rng.integers(1, 13, count)
    return Sequences.of(rng.integers(4, 23, lengths.sum()), lengths)


def batches(config):
    rng, count = np.random.default_rng(7), 66
    target = sequences(rng, count)
    if config.source == "image":
        source = Images(rng.integers(0, 256, (count, 12, 18, 1), dtype=np.uint8))
    elif config.source == "events":
        lengths = rng.integers(1, 10, count)
        values = rng.normal(size=(lengths.sum(), 7)).astype("float32")
        starts = np.cumsum(lengths) - lengths
        source = Sequences(values, starts, lengths.astype("int32"), np.nan)
        target = (rng.random(count) < 0.5).astype("float32")
    else:
        source = sequences(rng, count)
    return Batches(Batching.of(config), source, target, training=True)


def fitted(config, processes, tokens=None):
    optimizer.configure_keras(config)
    pairs = batches(config)
    size = {"text": 23, "image": 0, "events": 3}[config.source]
    model = optimizer.make_trainable(config, (size, 23), tokens, pairs, processes)
    model.trainable_variables[0].constraint = keras.constraints.MaxNorm(LARGEST)
    losses = []
    each = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: losses.append(logs))
    steps = pairs.statistics.steps_per_epoch
    for epoch in range(2):
        data = processes.epoch(pairs, epoch)
        model.fit(data, steps_per_epoch=steps, callbacks=[each], verbose=0, shuffle=False)
    return model, [float(logs["loss"]) for logs in losses], processes.epoch(pairs, 0)


def collectives(model, data):
    graph = model.train_function.get_concrete_function(iter(data)).graph.as_graph_def()
    bodies = {f.signature.name: f.node_def for f in graph.library.function}
    named = [node for nodes in (graph.node, *bodies.values()) for node in nodes]
    parts = [node.attr[part] for node in named for part in ("body", "cond") if part in node.attr]
    loops, inside, more = set(), [], {part.func.name for part in parts}
    while more - loops:  # and functions that loops call
        loops |= more
        inside = [node for name in loops & set(bodies) for node in bodies[name]]
        more = {each.func.name for node in inside for each in node.attr.values() if each.func.name}
    return {
        "loops": len(loops),
        "inside": sum("Collective" in node.op for node in inside),
        "all": sorted(node.op for node in named if "Collective" in node.op),
    }


found = {}
with joined(1) as one, joined() as two:  # once: another strategy would reuse keys of collectives
    for name in sys.argv[1:]:
        config = Config(**CASES[name])
        alone, losses, _ = fitted(config, one)
        both, shared, data = fitted(config, two)
        weights = zip(alone.get_weights(), both.get_weights())
        variables = [*both.variables, *both.optimizer.variables]
        copies = [[copy.numpy() for copy in v.value.values] for v in variables]
        first = keras.ops.convert_to_numpy(both.trainable_variables[0])
        found[name] = {
            "losses": [losses, shared],
            "weights": max(float(np.abs(a - b).max()) for a, b in weights),
            "norm": float(np.linalg.norm(first, axis=0).max()) / LARGEST,
            "apart": sum(not np.array_equal(*pair) for pair in copies),
            "copies": len(copies),
            "autotuned": data.options().autotune.enabled,  # it would delay the end of an epoch
            "traces": both._gradients.experimental_get_tracing_count() if name == "xla" else None,
            "collectives": collectives(both, data) if name == "text" else None,
        }
print(json.dumps(found))
"""


# Trains three epochs on one device, and one on two devices, one on one, and one on two.
CONTINUE = """
import json, sys
from pathlib import Path
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import training.fit._recorder as recorder
from tests.training.conftest import tiny_config
from training.fit.devices._joining import joined
from training.fit._train import DevSet, resume, train
from training.runs.files import RunFiles

recorder.draw_curves = lambda files, config: None
DevSet.draw = lambda dev: None
save = recorder.save_checkpoint


def save_and_stop(*args):
    save(*args)
    raise KeyboardInterrupt


config = tiny_config("epochs=3", "dropout=0.0", "max_dev_translations=3")
alone, moved = (Path(sys.argv[1], name) for name in ("alone", "moved"))
with joined(1) as one, joined() as two:
    train(config, alone, processes=one)
    recorder.save_checkpoint = save_and_stop
    for start, processes in ((train, two), (resume, one)):
        try:
            start(*[config] * (start is train), moved, processes=processes)
        except KeyboardInterrupt:
            pass
    recorder.save_checkpoint = save
    resume(moved, processes=two)
print(json.dumps([json.loads(RunFiles(run).history.read_text()) for run in (alone, moved)]))
"""


def found_by(*cases, script=SCRIPT):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", script, *cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def assert_trained_as_one(found, *names, tolerance=1e-4):
    for each in (found[name] for name in names):
        one, two = each["losses"]
        assert len(one) >= 6
        assert two == pytest.approx(one, rel=tolerance)
        assert min(one) < one[0] * 0.99  # the weights move
        assert each["weights"] < 50 * tolerance
        assert each["norm"] == pytest.approx(1, rel=0.01)  # a constraint holds
        assert each["copies"] > 10
        assert each["apart"] == 0
        assert each["autotuned"] is False


@pytest.mark.parametrize("workers", [1, 2])
def test_more_devices_than_there_are_is_one_line(workers):
    worker = Worker(0, workers, ("a:1", "b:2"))
    expected = "^--devices is 99, but TensorFlow has [0-9]+ to train on: [CG]PU:0"
    with pytest.raises(UserError, match=expected), on_tensorflow.joined(worker, 99):
        pass


@pytest.mark.parametrize(("cores", "chosen", "expected"), [(1, 0, [2]), (1, 5, []), (3, 0, [])])
def test_a_worker_on_one_core_has_a_thread_for_the_others(monkeypatch, cores, chosen, expected):
    threads = []
    threading = SimpleNamespace(
        get_inter_op_parallelism_threads=lambda: chosen,
        set_inter_op_parallelism_threads=threads.append,
    )
    monkeypatch.setattr(on_tensorflow.tf.config, "threading", threading)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores), raising=False)
    on_tensorflow._answer_while_computing()
    assert threads == expected


def test_two_devices_train_as_one_and_sum_once_a_step():
    found = found_by("text")
    assert_trained_as_one(found, "text")
    sums = found["text"]["collectives"]
    assert sums["loops"] >= 4  # encoder, decoder, and their gradients
    assert sums["inside"] == 0
    assert len(sums["all"]) == 2, sums  # one on each device


@pytest.mark.slow
def test_two_devices_train_as_one_whatever_is_read_and_however_it_is_computed():
    halves, others = ("bfloat16", "float16"), ("xla", "events", "image", "odd", "twice")
    found = found_by(*halves, *others, "dropout")
    assert_trained_as_one(found, *others)
    assert_trained_as_one(found, *halves, tolerance=2e-3)
    assert found["xla"]["traces"] == 1  # for both devices
    one, two = found["dropout"]["losses"]  # draws other numbers on each device
    assert two != pytest.approx(one, rel=1e-4)
    assert two == pytest.approx(one, rel=0.2)
    assert found["dropout"]["apart"] == 0


@pytest.mark.slow
def test_a_run_continues_on_another_number_of_devices(tmp_path):
    alone, moved = found_by(str(tmp_path), script=CONTINUE)
    assert [record["epoch"] for record in moved] == [1, 2, 3]
    assert moved[2]["loss"] < moved[0]["loss"] * 0.99
    for record, expected in zip(moved, alone, strict=True):
        for key in ("loss", "val_perplexity", "learning_rate"):
            assert record[key] == pytest.approx(expected[key], rel=1e-4), key


LONG = 300  # seconds, far more than anything here takes
SETTINGS = [*TINY, "epochs=3", "dropout=0.0", "max_dev_translations=3"]
TRAIN = """
import sys
import training.fit._recorder
from training.command.options import main_guard
from training.fit._train import DevSet
from training.train import main
training.fit._recorder.draw_curves = lambda files, config: None
DevSet.draw = lambda dev: None
main_guard(lambda: main(sys.argv[1:]))
"""
DIE = """
import os, signal
from training.fit.devices._on_tensorflow import MirroredProcesses
epoch = MirroredProcesses.epoch
def mortal(self, batches, number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return epoch(self, batches, number)
MirroredProcesses.epoch = mortal
"""
EARLY = "from training.command.native import start_tensorflow; start_tensorflow()\n"


def started(scripts, *arguments, home):
    """Start the workers of a training on this machine."""
    addresses = []
    for _ in scripts:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{free.getsockname()[1]}")
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": addresses},
                        "task": {"type": "worker", "index": number},
                    }
                ),
                "TMPDIR": str(home),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, script in enumerate(scripts)
    ]


def ended(processes):
    """Exit status, standard output and standard error of each."""
    try:
        said = [process.communicate(timeout=LONG) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


@pytest.mark.slow
def test_a_killed_worker_ends_the_other_and_both_continue_to_the_same_history(tmp_path):
    train(tiny_config(*SETTINGS), tmp_path / "alone")
    run, home = tmp_path / "run", tmp_path / "tmp"
    home.mkdir()
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    new = ["--preset", "phrasebook-en-fr", "--output", str(run), *options]
    survivor, killed = started([EARLY + TRAIN, EARLY + DIE + TRAIN], *new, home=home)
    assert killed.wait(LONG) == -signal.SIGKILL
    since = time.monotonic()
    ((status, _, errors),) = ended([survivor])
    assert time.monotonic() - since < 30
    killed.communicate()
    assert status == 1
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, errors
    assert "Another worker was lost" in lines[0]
    assert "Traceback" not in errors
    assert len(json.loads((run / "history.json").read_text())) == 1
    first, second = ended(started([EARLY + TRAIN] * 2, "--resume", "--output", str(run), home=home))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert json.loads(first[1].splitlines()[-1])["epochs_done"] == 3
    assert "waiting until 1 process has started, for at most 300 s\n" in first[1]
    assert "in 2 processes on 2 devices" in first[1]
    assert second[1] == ""
    assert [path for path in home.iterdir() if path.is_dir()] == []  # workers make no copies
    ours, theirs = (
        json.loads((path / "history.json").read_text()) for path in (run, tmp_path / "alone")
    )
    for record, expected in zip(ours, theirs, strict=True):
        for key in ("epoch", "loss", "val_perplexity", "learning_rate", "bleu"):
            assert record[key] == pytest.approx(expected[key], rel=1e-3), key
