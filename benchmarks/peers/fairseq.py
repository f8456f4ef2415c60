"""fairseq as a worker of the benchmarks, run by its own environment's Python.

python -m peers.fairseq train BATCHES VOCABULARY UNITS MODEL FORM...
python -m peers.fairseq translate SETTINGS VOCABULARY UNITS FORM...

It has no additive attention: Luong's general score instead, with the attentional vector fed back.
Its encoder's last states become the decoder's first without a layer between. It ends each
translation with END: the last of the tokens here. Sentences of a batch are sorted by length, as
its encoder asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.models.lstm import LSTMDecoder, LSTMEncoder, LSTMModel
from fairseq.sequence_generator import SequenceGenerator
from parts.batches import MODELS, PAD, SPECIAL, Model, training_batches
from peers.torch_steps import forbid_special_tokens, precision, training_round
from peers.workload import lengths, refuse, serve_peer, translation_rounds

ITS_PAD, END = 1, 2  # its own order of special tokens; END begins a sentence too


def make_model(vocabulary: int, units: int) -> tuple[LSTMModel, Dictionary]:
    """The benchmarks' encoder-decoder and its dictionary."""
    tokens = Dictionary()
    for number in range(vocabulary - SPECIAL):
        tokens.add_symbol(f"w{number}")
    shared = {"embed_dim": units // 2, "dropout_in": 0.0, "dropout_out": 0.0}
    encoder = LSTMEncoder(
        tokens, hidden_size=units // 2, bidirectional=True, left_pad=False, **shared
    )
    decoder = LSTMDecoder(
        tokens,
        hidden_size=units,
        out_embed_dim=units,
        encoder_output_units=encoder.output_units,
        **shared,
    )
    return LSTMModel(encoder, decoder), tokens


def training(
    path: str, vocabulary: int, units: int, kind: Model, form: list[str]
) -> Callable[[], None]:
    """A function that trains on every batch once."""
    if kind != MODELS["LSTM general, Luong, input feeding"]:
        refuse(kind)
    model, _ = make_model(vocabulary, units)
    batches = []
    for batch in training_batches(path, start=END):
        source_lengths = lengths(batch[0])
        longest_first = np.argsort(-source_lengths, kind="stable")
        numbers = [np.where(x == PAD, ITS_PAD, x)[longest_first] for x in batch]
        numbers.append(source_lengths[longest_first])
        batches.append([torch.tensor(x).long() for x in numbers])

    def loss(batch: list[torch.Tensor]) -> torch.Tensor:
        source, inputs, labels, source_lengths = batch
        logits, _ = model(source, source_lengths, inputs)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=ITS_PAD
        )

    return training_round(model, batches, loss, form)


def translations(
    path: str, vocabulary: int, units: int, form: list[str]
) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, by the mode's name."""
    model, tokens = make_model(vocabulary, units)
    forbid_special_tokens(model.decoder.fc_out.bias, SPECIAL)

    def make(beam_width: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
        generator = SequenceGenerator(
            [model.eval()],
            tokens,
            beam_size=beam_width,
            max_len_b=length - 1,
            min_len=length - 1,
        )

        def translate(source: np.ndarray) -> np.ndarray:
            inputs = {
                "src_tokens": torch.tensor(source),
                "src_lengths": torch.full((len(source),), source.shape[1]),
            }
            with precision(form):
                found = generator.generate([model], {"net_input": inputs})
            return torch.stack([best[0]["tokens"] for best in found]).numpy()

        return translate

    return translation_rounds(path, make)


if __name__ == "__main__":
    logging.disable()
    serve_peer(training, translations)
