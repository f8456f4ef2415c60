"""Joey NMT as a worker of the benchmarks, run by its own environment's Python.

python -m peers.joeynmt train BATCHES VOCABULARY UNITS MODEL FORM...
python -m peers.joeynmt translate SETTINGS VOCABULARY UNITS FORM...

Its decoder feeds the attentional vector back, or attends after a decoder without context: here the
former, its default. Its output layer has no bias. Sentences of a batch are sorted by length, as
its encoder asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.model import Model as JoeyModel
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from parts.batches import MODELS, PAD, SPECIAL, Model, training_batches
from peers.torch_steps import precision, training_round
from peers.workload import lengths, serve_peer, translation_rounds

SYMBOLS = SimpleNamespace(  # the library's own order
    **{"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"},
    **{"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
    **{"sep_token": None, "sep_id": None, "lang_tags": []},
)


def make_model(vocabulary: int, units: int, kind: Model = MODELS["LSTM additive"]) -> JoeyModel:
    """The benchmarks' encoder-decoder."""
    tokens = Vocabulary([f"w{number}" for number in range(vocabulary - SPECIAL)], SYMBOLS)
    shared = {"type": "recurrent", "rnn_type": kind.cell, "num_layers": 1, "dropout": 0.0}
    shared["embeddings"] = {"embedding_dim": units // 2, "dropout": 0.0}
    encoder = {**shared, "hidden_size": units // 2, "bidirectional": True}
    decoder = {
        **shared,
        "hidden_size": units,
        "hidden_dropout": 0.0,
        "attention": {"additive": "bahdanau", "general": "luong"}[kind.attention],
        "init_hidden": "bridge",
        "input_feeding": kind.recurrent,
    }
    model = build_model({"encoder": encoder, "decoder": decoder}, tokens, tokens)
    model.loss_function = ("crossentropy", 0.0)  # without smoothing
    return model


def make_batch(source: np.ndarray, target: np.ndarray | None = None) -> Batch:
    """Its batch of sources and, for training, targets with the start before them."""

    def numbers(ids: np.ndarray) -> torch.Tensor:
        return torch.tensor(np.where(ids == PAD, SYMBOLS.pad_id, ids)).long()

    return Batch(
        src=numbers(source),
        src_length=torch.tensor(lengths(source)),
        src_prompt_mask=None,
        trg=None if target is None else numbers(target),
        trg_prompt_mask=None,
        indices=torch.arange(len(source)),
        device=torch.device("cpu"),
        pad_index=SYMBOLS.pad_id,
        eos_index=SYMBOLS.eos_id,
        is_train=target is not None,
    )


def training(
    path: str, vocabulary: int, units: int, kind: Model, form: list[str]
) -> Callable[[], None]:
    """A function that trains on every batch once."""
    model = make_model(vocabulary, units, kind)
    batches = []
    for source, inputs, labels in training_batches(path, start=SYMBOLS.bos_id):
        longest_first = np.argsort(-lengths(source), kind="stable")
        target = np.concatenate([inputs[:, :1], labels], axis=1)
        batch = make_batch(source[longest_first], target[longest_first])
        # It takes END for the last input, which is cut off; here another word is last.
        batch.trg_input = batch.trg_input[:, : batch.trg.shape[1]]
        batches.append(batch)

    def loss(batch: Batch) -> torch.Tensor:
        found, *_ = model(return_type="loss", **vars(batch))
        return batch.normalize(found, "tokens")

    return training_round(model, batches, loss, form)


def translations(
    path: str, vocabulary: int, units: int, form: list[str]
) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, by the mode's name."""
    model = make_model(vocabulary, units).eval()

    def make(beam_width: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
        def translate(source: np.ndarray) -> np.ndarray:
            with precision(form):
                found, _, _ = search(
                    model,
                    make_batch(source),
                    max_output_length=length,
                    beam_size=beam_width,
                    beam_alpha=0.0,
                    min_output_length=length,
                    generate_unk=False,
                )
            return found

        return translate

    return translation_rounds(path, make)


if __name__ == "__main__":
    logging.disable()
    serve_peer(training, translations)
