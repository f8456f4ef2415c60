"""Keys of every run: data, attention, training."""

from __future__ import annotations

from dataclasses import dataclass

from training.config.keys import key


@dataclass(frozen=True)
class Shared:
    """See `training.model` and `training.fit`."""

    data: str = key("phrasebook-en-fr", "training data: a SPEC")
    train_limit: int = key(0, "training pairs used; 0 for all", least=0)
    attention: str = key(
        "additive",
        "attention mechanism, see docs/mechanisms.md; hard_monotonic: one place for each token, in "
        "order; none: the encoder's last state instead",
    )
    attention_units: int = key(
        512, "units of the attention's hidden layer, in mechanisms that have one"
    )
    distribution: str = key(
        "softmax", "distribution of the attention weights: softmax; sparse: sparsemax or entmax15"
    )
    dropout: float = key(
        0.2,
        "dropout rate on embeddings, memory and attentional vector",
        least=0,
        below=1,
        later=True,
    )
    epochs: int = key(10, "passes over all training pairs", later=True)
    batch_size: int = key(64, "training pairs in a batch")
    learning_rate: float = key(1e-3, "highest learning rate of Adam", above=0, later=True)
    warmup_steps: int = key(
        200, "steps in which the learning rate rises from 0", least=0, later=True
    )
    schedule: str = key(
        "cosine",
        "learning rate after the warm-up: falls to 0 by the last epoch, or stays",
        choices=("cosine", "constant"),
        later=True,
    )
    clip_norm: float = key(1.0, "largest norm of the gradient of all weights", above=0, later=True)
    average_epochs: int = key(
        0, "number of last epochs whose mean weights are tried; 0 for none", least=0, later=True
    )
    precision: str = key(
        "float32",
        "precision of matrix products",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
    )
    jit_compile: bool | str = key(
        "auto",
        "compile the training step with XLA; auto does for a GPU, where it pays several times",
        choices=("auto", True, False),
    )
    batch_shapes: int = key(
        0,
        "most shapes of batches in training, for each of which XLA compiles the step; 0 for any, "
        "and for 8 where XLA compiles",
        least=0,
    )
    seed: int = key(1, "seed of everything random", least=0, most=2**32 - 1)
