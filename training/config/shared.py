"""Keys of every run: data, attention, training."""

from __future__ import annotations

from dataclasses import dataclass

from training.config.keys import key


@dataclass(frozen=True)
class Shared:
    """See `training.model` and `training.fit`."""

    data: str = key("phrasebook-en-fr", "what is learned from: a SPEC")
    train_limit: int = key(0, "training pairs of data used, 0 for all", least=0)
    attention: str = key(
        "additive", "the decoder's, see docs/mechanisms.md; none: the encoder's last state"
    )
    attention_units: int = key(512, "of the hidden layer, for those that have one")
    distribution: str = key(
        "softmax", "of attention weights: softmax, or sparse ones, sparsemax or entmax15"
    )
    dropout: float = key(
        0.2, "on embeddings, memory and attentional vector", least=0, below=1, later=True
    )
    epochs: int = key(10, "times that all pairs are seen", later=True)
    batch_size: int = key(64, "sentence pairs in a step")
    learning_rate: float = key(1e-3, "of Adam, at its highest", above=0, later=True)
    warmup_steps: int = key(200, "steps over which the rate rises", least=0, later=True)
    schedule: str = key(
        "cosine",
        "of the rate: falls to 0 over all epochs, or stays",
        choices=("cosine", "constant"),
        later=True,
    )
    clip_norm: float = key(1.0, "largest norm of the whole gradient", above=0, later=True)
    average_epochs: int = key(
        0, "last ones whose mean weights compete with the best, 0 for none", least=0, later=True
    )
    precision: str = key(
        "float32",
        "of the products",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
    )
    jit_compile: bool = key(False, "whether XLA compiles the step")
    seed: int = key(1, "of all that is drawn at random", least=0)
