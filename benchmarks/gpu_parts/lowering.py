"""What Keras's backend hands to XLA for a case: FOLDER/NAME.pb (TensorFlow) or NAME.mlir (JAX).

`python -m gpu_parts.lowering CASES.json FOLDER`, which benchmarks/gpu_kernels.py runs
in a process with the backend. No GPU is needed. A line of JSON for each case has the seconds of
processor time that Python took to trace it, and the backend to make XLA's program of that.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from gpu_parts import cases
from training.data.tokens.store import END_ID
from training.decode.search import search
from training.decode.settings import SearchSettings
from training.model.seq2seq import build_model


def lower(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write the program of a case; return the processor time that it took."""
    keras.utils.clear_session()
    path = folder / case["name"]
    if case["kind"] == "search":
        return {"name": case["name"], **_write_function(_search(case), [_ids(case, 0)], path)}
    model, data = _trained(case)
    model._symbolic_build(data_batch=data)  # the variables of optimizer and metrics
    if keras.backend.backend() == "jax":
        return {"name": case["name"], **_write_jax(model, data, path)}
    return {"name": case["name"], **_write_function(model.train_step, data, path)}


def _ids(case: dict[str, Any], side: int) -> np.ndarray:
    """Return drawn ids of the source, side 0, or the target, side 1."""
    shape = case["batch"], case["shape"][side]
    return np.random.default_rng(side).integers(END_ID + 1, case["vocab"], shape, "int32")


def _trained(case: dict[str, Any]) -> tuple[keras.Model, Any]:
    model = cases.compiled_model(case, cases.config_of(case, jit_compile=True))
    ids = [_ids(case, min(i, 1)) for i in range(len(model.inputs))]
    if case["kind"] != "training":
        return model, (ids, _ids(case, 1))
    return model, (dict(zip((x.name for x in model.inputs), ids, strict=True)), _ids(case, 1))


def _search(case: dict[str, Any]) -> Callable[..., Any]:
    model = build_model(cases.config_of(case), case["vocab"], case["vocab"])
    options = SearchSettings(beam_width=case["beam_width"])
    return lambda source: search([model], source, options, max_length=case["shape"][1]).ids


def _write_function(function: Callable[..., Any], arguments: Any, path: Path) -> dict[str, float]:
    """Write TensorFlow's program: lengths are unknown while it is traced, known to XLA."""
    import tensorflow as tf

    arguments = tf.nest.map_structure(tf.constant, arguments)
    whole = isinstance(arguments, tuple)  # a batch is one argument
    specs = tf.nest.map_structure(lambda x: tf.TensorSpec([x.shape[0], None], x.dtype), arguments)
    traced = tf.function(
        function, jit_compile=True, autograph=False, input_signature=[specs] if whole else specs
    )
    times = [time.process_time()]
    traced.get_concrete_function()
    times.append(time.process_time())
    ir = traced.experimental_get_compiler_ir(*([arguments] if whole else arguments))
    path.with_suffix(".pb").write_bytes(ir(stage="hlo_serialized", platform_name="CPU"))
    return _seconds(*times)


def _seconds(began: float, traced: float) -> dict[str, float]:
    return {"tracing_s": traced - began, "lowering_s": time.process_time() - traced}


def _write_jax(model: keras.Model, data: Any, path: Path) -> dict[str, float]:
    import jax

    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([x.value for x in group] for group in groups)
    times = [time.process_time()]
    traced = jax.jit(model.train_step, donate_argnums=0).trace(state, data)
    times.append(time.process_time())
    lowered = traced.lower(lowering_platforms=("cuda",))
    path.with_suffix(".mlir").write_text(lowered.as_text())
    return _seconds(*times)


if __name__ == "__main__":
    for each in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        print(json.dumps(lower(each, Path(sys.argv[2]))), flush=True)
