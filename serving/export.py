"""A run, or an ensemble of several, to a SavedModel: python -m serving.export --run DIR."""

from __future__ import annotations

import training.quiet  # noqa: F401

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from serving.weights import DTYPES, Weights
from training import corpus
from training.cli import main_guard, positive_int
from training.decoding import search
from training.errors import UserError
from training.ids import END_ID, PAD_ID
from training.inference import PRECISIONS, check_precision, dense_ids
from training.run import Run, load_ensemble
from training.steps import fixed_steps

MANIFEST = "assets.extra/manifest.json"
AGREEMENT_TEXTS = 500  # compared when weights or products are rounded
WARMUP_TEXTS = (["warm up"], ["warm up", "", "a longer text to warm up with, of some more words"])


class Exported(tf.Module):
    """Weights, tokenizers and signatures of a translator, without the Keras models.

    The C++ loader of TensorFlow Serving cannot load a SavedModel that holds a Keras model, so the
    module holds the models' variables and the functions that use them.

    Args:
        runs: a run, or several that are used as an ensemble.
        beam_width: hypotheses kept for each sentence.
        num_results: translations that `nbest` returns, at most `beam_width`.
        max_source_length: tokens after which a text is cut.
        length_penalty: see `keras_attention.beam_search`.
        weights: what they are stored as, "float32", "float16" or "bfloat16".
        precision: of the products, "float32" or, for one run alone, "bfloat16". Where
            that is faster, their kernels are constants of the graph.

    Raises:
        ValueError: if several runs are given and `precision` is "bfloat16".
    """

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        beam_width: int = 5,
        num_results: int = 5,
        max_source_length: int = 256,
        length_penalty: float = 1.0,
        weights: str = "float32",
        precision: str = "float32",
    ) -> None:
        super().__init__()
        models = [run.model for run in runs]
        self._models = _Untracked(models)
        steps = None  # weights that are stored in half the size are no constants
        if weights == "float32" or precision == "bfloat16":
            steps = fixed_steps(models, beam_width, precision)
        taken = [weight for step in steps or () for weight in step.taken]
        self._settings = _Untracked(
            {"beam_width": beam_width, "length_penalty": length_penalty, "steps": steps}
        )
        self._num_results, self._max_source_length = num_results, max_source_length
        self.source_tokenizer = runs[0].source_tokenizer
        self.target_tokenizer = runs[0].target_tokenizer
        self.weights = Weights(models, weights, without=taken)
        self.attends = all(run.config.attention != "none" for run in runs)

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Return the functions by the name they are served under."""
        text = tf.TensorSpec([None], tf.string, name="text")
        functions = {"serving_default": self.translate, "nbest": self.nbest}
        if self.attends:
            functions["align"] = self.align
        made = {
            name: tf.function(function, autograph=False).get_concrete_function(text)
            for name, function in functions.items()
        }
        return {**made, "translate": made["serving_default"]}

    def translate(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text `(B,)` to `translation` `(B,)`, `score` `(B,)` and `truncated` `(B,)`."""
        ids, empty, truncated = self._read(text)
        found = self._search(ids)
        return {
            "translation": self._text(found.ids[:, 0], empty),
            "score": tf.where(empty, 0.0, found.scores[:, 0]),
            "truncated": truncated,
        }

    def nbest(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text `(B,)` to `translations` `(B, N)` and `scores` `(B, N)`, the best first."""
        ids, empty, _ = self._read(text)
        found = self._search(ids, num_results=self._num_results)
        each = tf.repeat(empty, self._num_results)
        flat = tf.reshape(found.ids, [-1, tf.shape(found.ids)[2]])
        shape = [-1, self._num_results]
        return {
            "translations": tf.reshape(self._text(flat, each), shape),
            "scores": tf.where(empty[:, None], 0.0, found.scores),
        }

    def align(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text `(B,)` to `translation` `(B,)`, the tokens of both sides, and the weights."""
        ids, empty, _ = self._read(text)
        found = self._search(ids, return_attention_weights=True)
        target = found.ids[:, 0]
        said = (target != PAD_ID) & (target != END_ID) & ~empty[:, None]
        return {
            "translation": self._text(target, empty),
            "source_tokens": self.source_tokenizer.tokens(ids),
            "target_tokens": tf.where(said, self.target_tokenizer.tokens(target), ""),
            "attention_weights": tf.where(said[:, :, None], found.attention_weights[:, 0], 0.0),
        }

    def _read(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return ids `(B, S)`, whether a text is empty, and whether it was cut."""
        text = tf.ensure_shape(text, [None])  # a wrong rank is then the caller's error
        ids = self.source_tokenizer.tokenize(text)
        lengths = ids.row_lengths()
        ids = dense_ids(ids[:, : self._max_source_length])
        return ids, tf.equal(lengths, 0), tf.greater(lengths, self._max_source_length)

    def _search(self, ids: tf.Tensor, **options: object) -> object:
        with self.weights.in_use():
            return search(self._models.value, ids, **self._settings.value, **options)

    def _text(self, ids: tf.Tensor, empty: tf.Tensor) -> tf.Tensor:
        return tf.where(empty, "", self.target_tokenizer.detokenize(ids))


@dataclasses.dataclass(frozen=True)
class _Untracked:
    """Holds what the SavedModel must not hold."""

    value: object


def export(runs: Sequence[Run], output: Path, **settings: int | float | str) -> Path:
    """Write a new version of a servable model.

    Args:
        runs: a run, or several that are used as an ensemble.
        output: the model's base path; versions are numbered directories in it.
        **settings: see `Exported`.

    Returns:
        The version's directory. It is written beside the versions and renamed when it is whole, so
        that a server never sees half of it.
    """
    output.mkdir(parents=True, exist_ok=True)
    aside = output / f"writing-{os.getpid()}"
    try:
        module = Exported(runs, **settings)
        tf.saved_model.save(module, str(aside), signatures=module.signatures())
        extra = aside / "assets.extra"
        extra.mkdir()
        manifest = _manifest(runs, settings)
        if is_rounded(settings):
            manifest["agreement"] = agreement(runs, module, settings)
        (aside / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _write_warmup(extra / "tf_serving_warmup_requests", output.name, module.attends)
        version = max((int(p.name) for p in output.iterdir() if p.name.isdecimal()), default=0) + 1
        return aside.rename(output / str(version))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def is_rounded(settings: dict) -> bool:
    """Whether an export of these settings may translate otherwise than its runs."""
    return any(settings.get(name, "float32") != "float32" for name in ("weights", "precision"))


def agreement(runs: Sequence[Run], module: Exported, settings: dict) -> dict[str, float]:
    """How the translations differ from those in float32.

    Returns:
        The number of `texts` (of the dev split, where it can be found), how many have the `same`
        translation, and the largest `score_difference` among those.
    """
    try:
        texts = corpus.load(runs[0].config.data, "dev", limit=AGREEMENT_TEXTS).sources
    except corpus.CorpusError:
        texts = [text for batch in WARMUP_TEXTS for text in batch]
    plain = Exported(runs, **{**settings, "weights": "float32", "precision": "float32"})
    found = []
    for each in (plain, module):
        translate = tf.function(each.translate, autograph=False, reduce_retracing=True)
        batches = [
            translate(tf.constant(batch))
            for batch in [texts[i : i + 100] for i in range(0, len(texts), 100)]
        ]
        found.append([np.concatenate([b[k] for b in batches]) for k in ("translation", "score")])
    (expected, scores), (translations, other_scores) = found
    same = expected == translations
    difference = np.abs(scores - other_scores)[same]
    return {
        "texts": len(texts),
        "same": int(same.sum()),
        "score_difference": float(difference.max(initial=0)),
    }


def _manifest(runs: Sequence[Run], settings: dict) -> dict:
    """Return what the version was made of."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings,
        "runs": [
            {
                "name": run.path.resolve().name,
                "config": dataclasses.asdict(run.config),
                "history": json.loads((run.path / "history.json").read_text()),
                "parameters": run.model.count_params(),
            }
            for run in runs
        ],
        "versions": {
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": sys.version.split()[0],
        },
    }


def _write_warmup(path: Path, name: str, attends: bool) -> None:
    """Write requests that TensorFlow Serving replays before the version is available."""
    signatures = ["translate", "nbest", *(["align"] if attends else [])]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature in signatures:
            for texts in WARMUP_TEXTS:
                request = predict_pb2.PredictRequest()
                request.model_spec.name = name
                request.model_spec.signature_name = signature
                request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
                log = prediction_log_pb2.PredictionLog(
                    predict_log=prediction_log_pb2.PredictLog(request=request)
                )
                writer.write(log.SerializeToString())


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.export",
        description="Export a run, or an ensemble of several, as a new version of a model.",
    )
    parser.add_argument(
        "--run", dest="runs", action="append", required=True, metavar="DIR", type=Path
    )
    parser.add_argument("--output", required=True, metavar="models/NAME", type=Path)
    parser.add_argument("--beam-width", type=positive_int, default=5, metavar="N")
    parser.add_argument("--num-results", type=positive_int, default=5, metavar="N")
    parser.add_argument("--max-source-length", type=positive_int, default=256, metavar="TOKENS")
    parser.add_argument("--length-penalty", type=float, default=1.0, metavar="X")
    parser.add_argument(
        "--weights", choices=DTYPES, default="float32", help="half precision halves the size"
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="of the products; bfloat16 is faster where the processor has it",
    )
    options = parser.parse_args(arguments)
    check_precision(options.precision, options.runs)
    if options.num_results > options.beam_width:
        raise UserError(
            f"--num-results expected at most --beam-width, {options.beam_width}. "
            f"Received: {options.num_results}"
        )
    version = export(
        load_ensemble(options.runs),
        options.output,
        beam_width=options.beam_width,
        num_results=options.num_results,
        max_source_length=options.max_source_length,
        length_penalty=options.length_penalty,
        weights=options.weights,
        precision=options.precision,
    )
    print(f"Exported {version}")
    if found := json.loads((version / MANIFEST).read_text()).get("agreement"):
        print(
            f"With {options.weights} weights and {options.precision} products, {found['same']} of "
            f"{found['texts']} translations are the same as in float32; scores differ by at most "
            f"{found['score_difference']:.2g}"
        )


if __name__ == "__main__":
    main_guard(main)
