"""OpenNMT-py as a worker of the benchmarks, run by its own environment's Python.

python -m peers.opennmt_py train BATCHES VOCABULARY UNITS MODEL FORM...
python -m peers.opennmt_py translate SETTINGS VOCABULARY UNITS FORM...

Its decoder feeds the attentional vector back; its encoder's last states become the decoder's first
without a layer between. Its own trainer is left out, with what it counts and logs.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

for name in ("spacy", "fasttext"):  # imported for transforms of text that nothing here uses
    sys.modules[name] = types.ModuleType(name)

import numpy as np
import pyonmttok
import torch
from onmt.constants import DefaultTokens
from onmt.decoders.decoder import InputFeedRNNDecoder, StdRNNDecoder
from onmt.encoders.rnn_encoder import RNNEncoder
from onmt.models import NMTModel
from onmt.modules import Embeddings
from onmt.translate import GNMTGlobalScorer, Translator
from parts.batches import MODELS, PAD, SPECIAL, Model, training_batches
from peers.torch_steps import forbid_special_tokens, precision, training_round
from peers.workload import lengths, serve_peer, translation_rounds


def make_model(vocabulary: int, units: int, kind: Model = MODELS["LSTM additive"]) -> NMTModel:
    """The benchmarks' encoder-decoder."""
    embed = [Embeddings(units // 2, vocabulary, PAD) for _ in range(2)]
    cell, score = kind.cell.upper(), {"additive": "mlp", "general": "general"}[kind.attention]
    encoder = RNNEncoder(cell, True, 1, units, 0.0, embed[0])
    make_decoder = InputFeedRNNDecoder if kind.recurrent else StdRNNDecoder
    decoder = make_decoder(cell, True, 1, units, attn_type=score, dropout=0.0, embeddings=embed[1])
    model = NMTModel(encoder, decoder)
    model.generator = torch.nn.Linear(units, vocabulary)
    for weights in model.parameters():
        torch.nn.init.uniform_(weights, -0.1, 0.1)  # as onmt.model_builder does
    return model


def training(
    path: str, vocabulary: int, units: int, kind: Model, form: list[str]
) -> Callable[[], None]:
    """A function that trains on every batch once."""
    model = make_model(vocabulary, units, kind)
    batches = []
    for source, inputs, labels in training_batches(path):
        target = np.concatenate([inputs, labels[:, -1:]], axis=1)  # the model cuts the last one off
        numbers = [torch.tensor(x).long() for x in (source, target, lengths(source), labels)]
        batches.append([numbers[0][..., None], numbers[1][..., None], *numbers[2:]])

    def loss(batch: list[torch.Tensor]) -> torch.Tensor:
        source, target, source_lengths, labels = batch
        found, _ = model(source, target, source_lengths)
        logits = model.generator(found)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=PAD
        )

    return training_round(model, batches, loss, form)


def translations(
    path: str, vocabulary: int, units: int, form: list[str]
) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, by the mode's name."""
    model = make_model(vocabulary, units).eval()
    forbid_special_tokens(model.generator.bias, SPECIAL)
    special = [DefaultTokens.PAD, DefaultTokens.UNK, DefaultTokens.BOS, DefaultTokens.EOS]
    words = [f"w{number}" for number in range(vocabulary - len(special))]
    tokens = pyonmttok.build_vocab_from_tokens(special + words)
    vocabularies = {"src": tokens, "tgt": tokens, "decoder_start_token": DefaultTokens.BOS}

    def make(beam_width: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
        translator = Translator(
            model,
            vocabularies,
            min_length=length,
            max_length=length,
            max_length_ratio=0,
            beam_size=beam_width,
            random_sampling_topk=1 if beam_width == 1 else 0,  # its greedy search
            global_scorer=GNMTGlobalScorer(0.0, 0.0, None, None),
        )

        def translate(source: np.ndarray) -> np.ndarray:
            batch = {"src": torch.tensor(source)[..., None]}
            batch["srclen"] = torch.full((len(source),), source.shape[1])
            with precision(form):
                found = translator.translate_batch(batch, attn_debug=False)["predictions"]
            return torch.stack([best[0] for best in found]).numpy()[:, :length]

        return translate

    return translation_rounds(path, make)


if __name__ == "__main__":
    serve_peer(training, translations)
