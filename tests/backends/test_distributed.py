"""Training on several devices of JAX and in several processes, held to training on one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from training.config.schema import Config
from training.data.batches._batches import Batches
from training.data.batches._plan import Batching
from training.data.read._manifest import Manifest, write_manifest
from training.data.tokens.store import Sequences
from training.runs._origin import Origin, write_origin
from training.runs.files import RunFiles

on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="needs the JAX backend")
LONG = 240  # seconds, far more than anything here takes
CONFIG = Config(
    **{"encoder": "simple_rnn", "bidirectional": False, "decoder": "simple_rnn"},
    **{"encoder_units": 5, "decoder_units": 7, "embedding_size": 3, "readout_units": 3},
    **{"attention_units": 11, "max_source_length": 16, "max_target_length": 15, "dropout": 0.0},
    **{"batch_shapes": 1, "batch_size": 22, "epochs": 3, "warmup_steps": 2, "learning_rate": 0.05},
)
# As on a machine without TensorFlow and Matplotlib, of which neither is needed.
SCRIPT = """
import sys
sys.modules |= {"tensorflow": None, "tensorflow_text": None}
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "matplotlib" else find(name)
"""
COMMAND = f"""{SCRIPT}
from training.command.options import main_guard
from training.train import main
train = ["--resume", "--output", *sys.argv[1:]]
"""
TRAIN = f"{COMMAND}main_guard(lambda: main(train))"
# Kills itself in the second epoch, before a batch is trained on.
TRAIN_AND_DIE = f"""{COMMAND}
import os, signal
from training.fit.devices._on_jax import ShardedProcesses
epoch = ShardedProcesses.epoch
def mortal(self, batches, number):
    for count, batch in enumerate(epoch(self, batches, number)):
        if number == 1 and count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
ShardedProcesses.epoch = mortal
main_guard(lambda: main(train))
"""


def make_run(path, config=CONFIG):
    """A prepared run of random tokens, in which dev divides by no batch and no device."""
    rng, files = np.random.default_rng(7), RunFiles(path)
    files.tokens.mkdir(parents=True)

    def sentences(count):
        lengths = rng.integers(1, 13, count)
        return Sequences.of(rng.integers(4, 23, lengths.sum()), lengths)

    train, dev = ((sentences(count), sentences(count)) for count in (137, 47))
    for name, pair in (("train", train), ("dev", dev)):
        for side, each in zip(("source", "target"), pair, strict=True):
            each.save(files.tokens, f"{name}.{side}")
    write_manifest(files.tokens, Manifest(137, 137, {}, "random", {}))
    pairs = Batches(Batching.of(config), *train, training=True).statistics
    counts = {"train": pairs.pairs, "dropped": pairs.dropped, "unusable": 0, "dev": 47}
    counts["target_tokens"] = pairs.target_tokens
    write_origin(files, Origin("random", "random", **counts, vocabulary=(23, 23), init=None))
    config.save(files.config)
    return path


def started(script, run, processes=1, devices=1):
    """Start the processes of a training, or of another script, on this machine."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    flags = f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
    environment["XLA_FLAGS"] = flags
    if processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        environment["JAX_COORDINATOR_ADDRESS"] = address
        environment["JAX_NUM_PROCESSES"] = str(processes)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [
        subprocess.Popen(
            [sys.executable, "-c", text, str(run)],
            env={**environment, "JAX_PROCESS_ID": str(number)},
            **options,
        )
        for number, text in enumerate([script] * processes if isinstance(script, str) else script)
    ]


def ended(processes):
    """Exit status, standard output and standard error of each."""
    try:
        said = [process.communicate(timeout=LONG) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def assert_alike(path, other):
    ours, theirs = (json.loads((run / "history.json").read_text()) for run in (path, other))
    assert [record["epoch"] for record in ours] == [1, 2, 3]
    for record, expected in zip(ours, theirs, strict=True):
        for key in ("epoch", "loss", "val_perplexity", "learning_rate"):
            assert record[key] == pytest.approx(expected[key], rel=1e-4), key
    assert theirs[2]["loss"] < theirs[0]["loss"] - 0.01


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A training by one process on one device."""
    run = make_run(tmp_path_factory.mktemp("alone") / "run")
    ((status, _, errors),) = ended(started(TRAIN, run))
    assert status == 0, errors
    return run


@on_jax
def test_two_processes_of_which_one_is_killed_and_all_are_started_again_train_as_one_does(
    alone, tmp_path
):
    run = make_run(tmp_path / "run")
    survivor, killed = ended(started([TRAIN, TRAIN_AND_DIE], run, processes=2))
    assert killed[0] == -signal.SIGKILL
    assert survivor[0] != 0
    assert len(json.loads((run / "history.json").read_text())) == 1
    first, second = ended(started(TRAIN, run, processes=2))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert json.loads(first[1].splitlines()[-1])["epochs_done"] == 3
    assert "epoch" not in second[1]  # Gloo has lines of its own
    assert_alike(run, alone)


@on_jax
def test_processes_that_see_other_runs_end(tmp_path):
    runs = [make_run(tmp_path / "run"), make_run(tmp_path / "other", replace(CONFIG, epochs=5))]
    resume = ["--resume", "--output"]
    scripts = [f"{COMMAND}main_guard(lambda: main({[*resume, str(run)]}))" for run in runs]
    for status, _, errors in ended(started(scripts, "", processes=2)):
        assert status != 0
        assert "differs between processes. Use a directory that all of them see" in errors


STEPS = f"""{SCRIPT}
import json
import jax, jax.numpy as jnp, keras, numpy as np
from training.fit._optimizer import ClippedAdam
from training.fit._optimizer import TokenCrossentropy
from training.fit.devices._joining import joined
from training.fit.devices._jax_step import ShardedModel, own_seeds
from training.model.seq2seq import build_seq2seq
from tests.backends.test_distributed import CONFIG, loops
from dataclasses import replace

rng = np.random.default_rng(11)
source, target, labels = (rng.integers(4, 23, (6, 16)).astype("int32") for _ in range(3))
for row, length in enumerate((3, 16, 1, 5, 7, 0)):  # the last row is padding
    for ids in (source, target, labels):
        ids[row, length:] = 0
batch = {{"source": source, "target": target}}, labels

def step(kind, config, rows=slice(None)):
    keras.utils.set_random_seed(3)
    model = build_seq2seq(config, 23, 23)
    model = kind(model.input, model.output)
    model.compile(ClippedAdam(0.1, 0.01), TokenCrossentropy(0.1), jit_compile=True)
    model.optimizer.build(model.trainable_variables)
    parts = "trainable_variables", "non_trainable_variables", "metrics_variables"
    values = [[v.value for v in getattr(model, part)] for part in parts]
    state = values[0], values[1], [v.value for v in model.optimizer.variables], values[2]
    data = jax.tree.map(lambda ids: ids[rows], batch)
    if kind is ShardedModel:
        data = *data, np.ones(len(data[1]), "float32")
    if keras.distribution.distribution():
        get = keras.distribution.distribution().get_data_layout
        data = jax.tree.map(lambda x: jax.device_put(x, get(x.shape).backend_layout), data)
    compiled = jax.jit(model.train_step).lower(state, data).compile()
    logs, after = compiled(state, data)
    norm = float(sum(abs(np.asarray(w) - np.asarray(v)).sum() for w, v in zip(after[0], state[0])))
    return float(logs["loss"]), norm, loops(compiled.as_text())

config = replace(CONFIG, coverage_loss=0.5)
found = {{"one": step(keras.Model, config, slice(5))}}
with joined() as processes:
    assert processes.devices == 2
    found["two"] = step(ShardedModel, config)
    found["partitioner"] = step(keras.Model, CONFIG)
    mesh = keras.distribution.distribution().device_mesh.backend_mesh
    spec, values = jax.sharding.PartitionSpec, [jnp.array([3, 5], "uint32"), jnp.array([7.0, 1.0])]

    def draw(values):
        own = own_seeds(values, [True, False], 1)
        return own, own_seeds(own, [True, False], -1)

    on_both = jax.shard_map(draw, mesh=mesh, in_specs=spec(), out_specs=spec("batch"))
    found["seeds"] = jax.tree.map(lambda value: np.asarray(value).tolist(), on_both(values))
print(json.dumps(found))
"""


def loops(text):
    """Loops in a compiled module, and all-reduces within and outside of them."""
    computations = dict(re.findall(r"^(?:ENTRY )?%?([\w.-]+) [^\n]*{\n(.*?)^}", text, re.M | re.S))
    bodies = set(re.findall(r"\bbody=%?([\w.-]+)", text))
    inside, found = set(), set(bodies)
    while found:
        name = found.pop()
        inside.add(name)
        found |= computations.keys() & set(re.findall(r"[\w.-]+", computations[name])) - inside
    counts = [0, 0]
    for name, body in computations.items():
        counts[name not in inside] += sum(" all-reduce" in line for line in body.splitlines())
    return len(bodies), *counts


@on_jax
def test_the_step_of_two_devices_is_that_of_one_and_adds_up_outside_of_loops():
    (result,) = ended(started(STEPS, "", devices=2))
    assert result[0] == 0, result[2]
    found = json.loads(result[1].splitlines()[-1])
    one, two = found["one"], found["two"]
    assert two[0] == pytest.approx(one[0], rel=1e-5)
    assert two[1] == pytest.approx(one[1], rel=1e-4)
    count, within, outside = two[2]
    assert count >= 3  # encoder, decoder, and their gradients
    assert within == 0
    assert outside > 0
    assert found["partitioner"][2][1] > 0  # what is counted would be found
    (own, others), same = found["seeds"]
    assert own[:2] == [3, 5]  # the first device draws what one alone would
    assert own[2] != 3
    assert own[3] == 5
    assert others == [7, 1, 7, 1]
    assert same == [[3, 5, 3, 5], [7, 1, 7, 1]]


@on_jax
def test_processes_share_a_batch_in_order_and_fill_it(rng):
    from training.fit.devices._on_jax import ShardedProcesses

    source, target, labels = (rng.integers(4, 99, (7, width)) for width in (5, 3, 3))
    texts, outcomes = ({"source": source, "target": target}, labels), labels[:, 0] / 2
    for batch in (texts, ({"source": source}, outcomes)):
        one = SimpleNamespace(epoch=lambda number, batch=batch: iter([batch]))
        parts = [list(ShardedProcesses(n, 3, 6).epoch(one, 0)) for n in range(3)]
        assert [len(part) for part in parts] == [1, 1, 1]
        x, y, valid = zip(*(part[0] for part in parts), strict=True)
        assert [len(each) for each in y] == [4, 4, 4]
        np.testing.assert_array_equal(np.concatenate(valid), [1] * 7 + [0] * 5)
        read = np.concatenate([each["source"] for each in x])
        np.testing.assert_array_equal(read, np.concatenate([source, *[source[:1]] * 5]))
        said = np.concatenate(y)
        np.testing.assert_array_equal(said[:7], batch[1])
        assert not said[7:].any()
