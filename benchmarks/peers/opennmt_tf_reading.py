"""How fast OpenNMT-tf reads pairs of texts into batches, run by its own environment's Python.

    cd benchmarks && PYTHON -m peers.opennmt_tf_reading SOURCE TARGET SOURCE.model TARGET.model

The texts are UTF-8, a sentence a line; the models are SentencePiece's. OpenNMT-tf tokenizes each
epoch anew. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import opennmt
import sentencepiece
import tensorflow as tf

BATCH_SIZE = 64
LONGEST = 60


def main(source: str, target: str, *models: str) -> None:
    """Read all pairs once."""
    model = opennmt.models.LuongAttention()
    with tempfile.TemporaryDirectory() as folder:
        data = {}
        for side, file in zip(("source", "target"), models, strict=True):
            vocabulary = Path(folder) / side
            pieces = sentencepiece.SentencePieceProcessor(model_file=file)
            # The first three stand for padding and the ends of a sentence, by names of its own.
            words = [pieces.id_to_piece(number) for number in range(3, len(pieces))]
            vocabulary.write_text("\n".join(["<blank>", "<s>", "</s>", *words]) + "\n")
            data[f"{side}_vocabulary"] = str(vocabulary)
            params = {"mode": "none", "sp_model_path": file}
            data[f"{side}_tokenization"] = {"type": "OpenNMTTokenizer", "params": params}
        model.initialize(data)
        batches = model.examples_inputter.make_training_dataset(
            source,
            target,
            BATCH_SIZE,
            shuffle_buffer_size=100_000,
            length_bucket_width=2,
            maximum_features_length=LONGEST,
            maximum_labels_length=LONGEST,
            single_pass=True,
            num_threads=2,
        )
        wall, processor = time.perf_counter(), time.process_time()
        pairs = sum(int(tf.shape(features["length"])[0]) for features, _ in batches)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    rates = {"pairs_per_s": pairs / wall, "processor_s_per_million": 1e6 * processor / pairs}
    print(json.dumps({"pairs": pairs, **rates}))


if __name__ == "__main__":
    main(*sys.argv[1:])
