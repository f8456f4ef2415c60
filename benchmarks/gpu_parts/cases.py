"""The cases of kernel_cases.json on a card, by TensorFlow: training steps and searches.

A step is what `training.train` runs: tf.data, XLA, batches of one shape, which is the case's, since
its kernels are counted without a card. Lengths are drawn, and real tokens count. The share of the
card's rate is that of products with weights alone, padding included.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from gpu_parts import calls, machine, profile
from gpu_parts import training as measured
from training.config.schema import Config
from training.data.batches._batches import Batches
from training.data.batches._plan import Batching
from training.data.tokens.store import END_ID, Sequences
from training.fit._optimizer import compile_model, configure_keras
from training.model.seq2seq import build_model

CASES = Path(__file__).with_name("kernel_cases.json")
COUNTS = Path(__file__).with_name("kernel_counts.json")
STEPS = 100  # of an epoch; the second one is measured
TINY = {"encoder_units": 3, "decoder_units": 5, "embedding_size": 7, "attention_units": 3}
TINY |= {"readout_units": 7, "encoder_layers": 1, "decoder_layers": 1}


def measure(step: str, name: str, tiny: bool) -> dict[str, Any]:
    """Return the row of a case, for the step "training", "flags", "kernels" or "decoding"."""
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    case = next(case for case in cases if case["name"] == name)
    if tiny:
        case |= {"batch": 3, "shape": [5, 7], "vocab": 23, "units": 8}
        case["config"] = {**case.get("config", {}), **TINY}
    row = {"case": name, "batch": case["batch"], "padded": case["shape"]}
    try:
        if step == "decoding":
            row |= _search(case)
        else:
            row |= _train(case, 2 if tiny else STEPS, profiled=step == "kernels")
    except Exception as error:  # such as the memory of the card
        return {**row, "error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    kernels = json.loads(COUNTS.read_text(encoding="utf-8"))[name]
    return {**row, "kernels": kernels, "us_a_kernel": row["ms"] * 1e3 / kernels}


def config_of(case: dict[str, Any], **settings: Any) -> Config:
    """Return the configuration of a case, and set Keras's precision and seed by it."""
    config = Config(
        batch_size=case["batch"], epochs=1, dropout=0.2, **case.get("config", {}), **settings
    )
    configure_keras(config)
    return config


def compiled_model(case: dict[str, Any], config: Config) -> keras.Model:
    """Return the model of a case for training, compiled as `training.train` has it."""
    if case["kind"] != "training":
        make = measured.stock if case["kind"] == "stock Keras" else measured.readme
        model = make(case["units"], case["vocab"], length=None)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(), loss, jit_compile=config.compiles())
        return model
    model = build_model(config, case["vocab"], case["vocab"])
    compile_model(model, config, STEPS)
    return model


def _batches(case: dict[str, Any], config: Config, steps: int) -> Batches:
    """Draw sentences from a third of the case's lengths to all of them."""
    rng, count = np.random.default_rng(7), steps * case["batch"]

    def sentences(longest: int) -> Sequences:
        lengths = rng.integers(-(-longest // 3), longest + 1, count)
        lengths[0] = longest
        return Sequences.of(rng.integers(END_ID + 1, case["vocab"], lengths.sum()), lengths)

    source, target = sentences(case["shape"][0]), sentences(case["shape"][1] - 1)
    return Batches(Batching.of(config), source, target, training=True)


def _train(case: dict[str, Any], steps: int, profiled: bool = False) -> dict[str, Any]:
    """Train for two epochs; return the figures of the second. A step more may be profiled."""
    keras.utils.clear_session()
    config = config_of(case, batch_shapes=1)
    batches, model = _batches(case, config, steps), compiled_model(case, config)
    seconds = []
    for epoch in range(2):
        dataset = batches.dataset(epoch)
        if case["kind"] != "training":
            dataset = dataset.map(lambda x, labels: ((x["source"], x["target"]), labels))
        started = time.perf_counter()
        model.fit(dataset, shuffle=False, verbose=0)
        seconds.append(time.perf_counter() - started)
    if profiled:
        with profile.launches():
            model.fit(dataset.take(1), shuffle=False, verbose=0)
    counts = batches.statistics
    rate = counts.steps_per_epoch / seconds[1]
    flops = 6 * rate * multiplications(model, case)  # 2 forth, 4 back to inputs and to weights
    return {
        "target_tokens_per_s": counts.target_tokens / seconds[1],
        "tokens_per_s": (counts.source_tokens + counts.target_tokens) / seconds[1],
        "ms": 1e3 / rate,
        "first_step_s": seconds[0] - seconds[1],
        "tflop_per_s": flops / 1e12,
        "share_of_peak": machine.share(flops, config.precision),
    }


def _search(case: dict[str, Any]) -> dict[str, Any]:
    """Translate a batch; return the figures of a call."""
    from training.decode.search import search
    from training.decode.settings import SearchSettings
    from training.graphs import graph

    keras.utils.clear_session()
    config = config_of(case)
    model = build_model(config, case["vocab"], case["vocab"])
    options = SearchSettings(beam_width=case["beam_width"])
    (inputs, _), *_ = _batches(case, config, 1).epoch()
    source = keras.ops.convert_to_tensor(inputs["source"])

    @graph(jit_compile=config.compiles() or None)
    def translate(source: Any) -> Any:
        return search([model], source, options, max_length=case["shape"][1]).lengths

    started = time.perf_counter()
    tokens = int(translate(source).numpy().sum())
    first = time.perf_counter() - started
    milliseconds = calls.milliseconds(lambda: translate(source).numpy(), 10)
    return {
        "beam_width": case["beam_width"],
        "target_tokens_per_s": tokens / milliseconds * 1e3,
        "sentences_per_s": case["batch"] / milliseconds * 1e3,
        "ms": milliseconds,
        "first_step_s": first,
    }


def multiplications(model: keras.Model, case: dict[str, Any]) -> int:
    """Return the multiplications with weights in a step's forward pass, padding included."""
    source, target = (case["batch"] * length for length in case["shape"])
    weights = {weight.path: weight.shape for weight in model.trainable_weights}
    tied = case["kind"] == "training" and "output/kernel" not in weights
    total = 0
    for path, shape in weights.items():
        is_read_once = "bridge" in path  # for each sentence
        if ("kernel" in path and not is_read_once) or (tied and "target_embedding" in path):
            of_source = "bidirectional" in path or "key_kernel" in path
            total += int(np.prod(shape)) * (source if of_source else target)
    return total
