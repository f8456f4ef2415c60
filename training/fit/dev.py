"""The dev set, scored by the model that is being trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from training.data.pair_files import Split
from training.decode.labels import make_predictor
from training.decode.settings import Search
from training.decode.texts import make_translator
from training.fit.crossentropy import Perplexity
from training.graphs import graph
from training.metrics import METRICS, score
from training.runs.run import Run
from training.score import labels as label_scores
from training.sources.events.histories import Histories


class LabelledDevSet:
    """The dev set of a label, scored with the current weights."""

    def __init__(self, run: Run, dev: Histories) -> None:
        self.split, self.predict = dev, make_predictor([run])

    def score(self) -> dict[str, float]:
        """Return `val_loss`, the mean cross-entropy, and `auc`."""
        probabilities = self.predict(self.split).probabilities
        return {
            "val_loss": label_scores.cross_entropy(self.split.labels, probabilities),
            "auc": METRICS["auc"].score(self.split.labels, probabilities),
        }


class DevSet:
    """The dev set, scored with the current weights; the perplexity is that of its batches."""

    def __init__(self, run: Run, dev: Split, batches: Any) -> None:
        self.run, self.batches = run, batches
        limit = run.config.validation_limit or len(dev.sources)
        chosen = np.random.default_rng(0).permutation(len(dev.sources))[:limit]
        self.split = dev.select(sorted(chosen))
        self.translate = make_translator([run], Search(beam_width=1))
        self.perplexity = Perplexity()

    def score(self) -> dict[str, float]:
        """Return `val_perplexity`, and the figures of `training.metrics`."""
        self.perplexity.reset_state()
        for inputs, labels in self.batches:
            self._add_to_perplexity(inputs, labels)
        hypotheses = self.translate(self.split.sources)
        scores = score(self.run.config.metric, hypotheses, self.split.references)
        return {"val_perplexity": float(self.perplexity.result()), **scores}

    @graph(reduce_retracing=True)
    def _add_to_perplexity(self, inputs: dict, labels: tf.Tensor) -> None:
        self.perplexity.update_state(labels, self.run.model(inputs, training=False))
