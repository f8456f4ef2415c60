"""Keys of a text as target: what a decoder says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from training.command.errors import ConfigError
from training.config.keys import key
from training.config.sources import CELLS, TOKENIZERS
from training.metrics import OF_TEXTS


@dataclass(frozen=True)
class Target:
    """The decoder and its loss, see `training.model.seq2seq`."""

    target_tokenizer: str = key("sentencepiece", "tokenizer of targets", choices=TOKENIZERS)
    target_vocab_size: int = key(8000, "largest target vocabulary")
    max_target_length: int = key(60, "longest target, in tokens; longer pairs are left out")
    validation_limit: int = key(
        500, "dev sentences translated after each epoch; 0 for all", least=0, later=True
    )
    metric: str = key(
        "auto",
        "metric of translations: bleu-zh for Chinese, symbols for symbols wrong (PER) and whole "
        "answers wrong (WER), characters for CER; auto takes exact matches where most dev targets "
        "have three words or fewer, and bleu otherwise",
        choices=("auto", *OF_TEXTS),
    )
    decoder: str = key("gru", "recurrent cell of the decoder", choices=CELLS)
    decoder_layers: int = key(1, "recurrent layers of the decoder")
    decoder_units: int = key(512, "units of the decoder's cell")
    embedding_size: int = key(256, "width of source and target embeddings")
    attention_heads: int = key(1, "attention heads")
    attention_options: str = key("", 'further arguments of the mechanism: "half_width=5, …"')
    order: str = key(
        "bahdanau", "attend before the cell's step, or after it", choices=("bahdanau", "luong")
    )
    input_feeding: bool = key(False, "feed the last attentional vector to the cell")
    gate: bool = key(False, "gate the context as Show, Attend and Tell does")
    readout: str = key(
        "vector",
        "attentional vector: tanh(W_c [c; s]), or deep, Bahdanau's maxout of [c; s; y]",
        choices=("vector", "deep"),
    )
    readout_units: int = key(512, "units of the attentional vector")
    tie_embeddings: bool = key(
        False,
        "share the weights of target embedding and output layer; needs readout_units = "
        "embedding_size",
    )
    label_smoothing: float = key(
        0.0, "probability spread evenly over all tokens", least=0, below=1, later=True
    )
    consistency: float = key(
        0.0, "weight of R-Drop's loss, its alpha; a step takes twice the time", least=0
    )
    coverage_loss: float = key(
        0.0, "weight of the loss for looking at the same place twice", least=0, later=True
    )
    doubly_stochastic: float = key(
        0.0, "weight of the loss that spreads attention over the source", least=0, later=True
    )
    keep_by: str = key(
        "auto",
        "epoch that is kept: of the best score, of the least perplexity, or the last (of several "
        "average_epochs their mean), whatever dev says; auto takes the score where 200 dev "
        "sentences or more are translated",
        choices=("auto", "score", "perplexity", "last"),
    )

    def check(self) -> None:
        """Refuse keys that do not go together."""
        self.own_arguments()
        if self.tie_embeddings and self.readout_units != self.embedding_size:
            raise ConfigError(
                "tie_embeddings expected readout_units = embedding_size. "
                f"Received: {self.readout_units} and {self.embedding_size}"
            )

    def own_arguments(self) -> dict[str, Any]:
        """Return the arguments of the mechanism's own; the layer refuses those it lacks."""
        own: dict[str, Any] = {}
        for option in filter(str.strip, self.attention_options.split(",")):
            name, separator, value = (part.strip() for part in option.partition("="))
            if not separator or not name or not value:
                raise ConfigError(f"attention_options expected KEY=VALUE, … Received: {option}")
            if name in ("units", "num_heads", "distribution"):
                raise ConfigError(f"attention_options has no {name}, which has a key of its own")
            try:
                own[name] = json.loads(value)  # a number, true or false
            except ValueError:
                own[name] = value
        return own
