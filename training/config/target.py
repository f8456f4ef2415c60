"""Keys of a text as target: what a decoder says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from training.command.errors import ConfigError
from training.config.keys import key
from training.config.recurrent import CELLS
from training.config.text import TOKENIZERS


@dataclass(frozen=True)
class Target:
    """The decoder and its loss, see `training.model.seq2seq`."""

    target_tokenizer: str = key("sentencepiece", "how targets are cut", choices=TOKENIZERS)
    target_vocab_size: int = key(8000, "most target tokens there are")
    max_target_length: int = key(60, "pairs with more target tokens are left out")
    validation_limit: int = key(
        500, "dev sentences translated after each epoch, 0 for all", least=0, later=True
    )
    metric: str = key(
        "auto",
        "of translations; bleu-zh for Chinese, phones for PER and WER, characters for CER; auto "
        "counts exact matches where most dev targets have three words or fewer, or takes bleu",
        choices=("auto", "bleu", "bleu-zh", "exact", "phones", "characters"),
    )
    decoder: str = key("gru", "the decoder's cell", choices=CELLS)
    decoder_layers: int = key(1, "recurrent layers of the decoder")
    decoder_units: int = key(512, "of the decoder's cell")
    embedding_size: int = key(256, "of source and target embeddings")
    attention_heads: int = key(1, "of the attention")
    attention_options: str = key("", 'arguments of the mechanism\'s own: "half_width=5, …"')
    order: str = key(
        "bahdanau", "attend before the cell's step, or after it", choices=("bahdanau", "luong")
    )
    input_feeding: bool = key(False, "whether the cell reads the last attentional vector too")
    gate: bool = key(False, "of the context, Show, Attend and Tell's")
    readout: str = key(
        "vector",
        "tanh(W_c [c; s]); deep: Bahdanau's, a maxout of [c; s; y]",
        choices=("vector", "deep"),
    )
    readout_units: int = key(512, "of the attentional vector tanh(W_c [c; s])")
    tie_embeddings: bool = key(
        False, "target embedding = output layer; needs readout_units = embedding_size"
    )
    label_smoothing: float = key(0.0, "share of other tokens", least=0, below=1, later=True)
    consistency: float = key(
        0.0,
        "weight of what divides two answers under dropout, R-Drop's alpha: twice the time",
        least=0,
    )
    coverage_loss: float = key(
        0.0, "weight of the loss for looking twice at the same place", least=0, later=True
    )
    doubly_stochastic: float = key(
        0.0, "weight of the loss that spreads attention over the source", least=0, later=True
    )
    length_multiple: int = key(1, "batches are padded to a multiple of it; more with jit_compile")
    keep_by: str = key(
        "auto",
        "the epoch that is kept: of the best score or the least perplexity; auto takes the score "
        "where 200 dev sentences or more are translated",
        choices=("auto", "score", "perplexity"),
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
