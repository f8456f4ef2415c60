"""Drawn segmentations, held to an enumeration of all of them and to the texts that they spell."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import sentencepiece

from tests.training.conftest import tiny_config
from training.command.errors import ConfigError
from training.data.batches import read_batches
from training.data.corpus import load
from training.data.pieces import SubwordSampler, model_of, train_sentencepiece
from training.data.store import PAD_ID, UNK_ID, Sequences
from training.runs.files import RunFiles
from training.runs.start import open_run

CUT = ["source_tokenizer=sentencepiece", "target_tokenizer=sentencepiece"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Configuration, tokenizers, and the folder of the token ids of a few hundred sentences."""
    config = tiny_config(*CUT, "subword_sampling=0.3", "join=0.4", "batch_size=17")
    files = RunFiles(tmp_path_factory.mktemp("run"))
    opened = open_run(files, config)
    return config, (opened.source, opened.target), files.streamed


def model(side):
    return model_of(side.state())


def spell(pieces, ids):
    """Texts of rows of ids."""
    return [pieces.decode([i for i in row if i > UNK_ID + 2]) for row in ids.tolist()]


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_segmentations_have_their_probability_to_a_power(run, alpha):
    _, (source, _), _ = run
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model(source.tokenizer))
    scores = {pieces.id_to_piece(i): pieces.get_score(i) for i in range(pieces.get_piece_size())}

    def every(text):
        if not text:
            yield (), 0.0
        for end in range(1, len(text) + 1):
            if text[:end] in scores:
                for rest, score in every(text[end:]):
                    yield (text[:end], *rest), scores[text[:end]] + score

    text = "she eats"
    powers = {split: np.exp(alpha * score) for split, score in every("▁" + text.replace(" ", "▁"))}
    assert len(powers) > 5
    total, count = sum(powers.values()), 4000
    ids = pieces.encode(text)
    drawn = SubwordSampler(model(source.tokenizer), alpha).draw(
        Sequences.of(np.tile(ids, count), np.full(count, len(ids))), 7
    )
    counts = Counter(
        tuple(pieces.id_to_piece(drawn.values[start : start + length].tolist()))
        for start, length in zip(drawn.starts, drawn.lengths, strict=True)
    )
    assert set(counts) <= set(powers)
    # Rare ones are counted together: of one alone a single draw may be a hundred times its share.
    rare = {split for split, power in powers.items() if count * power / total < 25}
    assert len(rare) < len(powers)
    for splits in (rare, *({split} for split in set(powers) - rare)):
        share = sum(powers[split] for split in splits) / total
        deviation = np.sqrt(share * (1 - share) / count)
        drawn_share = sum(counts[split] for split in splits) / count
        assert drawn_share == pytest.approx(share, abs=5 * deviation + 2 / count), splits


SCRIPT = """
import sys
import numpy as np
from training.data.store import Sequences
from training.data.pieces import SubwordSampler
ids = Sequences.of(np.arange(5, 105), np.full(20, 5))
sampler = SubwordSampler(open(sys.argv[1], "rb").read(), 0.2)
print(sampler.draw(ids, 7).values.tolist())
"""


def test_another_process_draws_the_same(run, tmp_path):
    """So that a run which goes on sees what it would have seen."""
    path = tmp_path / "model"
    path.write_bytes(model(run[1][1]))
    ids = Sequences.of(np.arange(5, 105), np.full(20, 5))
    drawn = SubwordSampler(path.read_bytes(), 0.2).draw(ids, 7).values.tolist()
    command = [sys.executable, "-c", SCRIPT, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == drawn != ids.values.tolist()


def test_subwords_of_bpe_are_refused_in_one_line():
    lines = load("phrasebook-en-fr", "dev").sources
    state = train_sentencepiece(lines, 300, model_type="bpe")
    with pytest.raises(ConfigError, match="subword_sampling expected a text of more words"):
        SubwordSampler(state, 0.1)


def test_a_sentence_with_an_unknown_piece_stays_as_it_is(run):
    _, (source, _), _ = run
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model(source.tokenizer))
    ids = [*pieces.encode("she is eating"), UNK_ID, *pieces.encode("an apple")]
    many = Sequences.of(np.tile(ids, 53), np.full(53, len(ids)))
    sampler = SubwordSampler(model(source.tokenizer), 0.1)
    drawn = sampler.draw(many, 3)
    np.testing.assert_array_equal(drawn.values, many.values)
    np.testing.assert_array_equal(drawn.lengths, many.lengths)


def test_epochs_have_the_same_texts_in_other_subwords(run):
    config, (source, target), folder = run
    states = source.tokenizer.state(), target.state()
    drawn, dev = read_batches(config, folder)
    plain, plain_dev = read_batches(replace(config, subword_sampling=0.0), folder)
    readers = [sentencepiece.SentencePieceProcessor(model_proto=model_of(s)) for s in states]

    def texts(batches):
        sides = [(inputs["source"], labels) for inputs, labels in batches]
        return [
            tuple(text for side, own in zip(readers, ids, strict=True) for text in spell(side, own))
            for ids in sides
        ]

    def assert_same(batches, others):
        for (inputs, labels), (other_inputs, other_labels) in zip(batches, others, strict=True):
            np.testing.assert_array_equal(inputs["source"], other_inputs["source"])
            np.testing.assert_array_equal(labels, other_labels)

    first, second = (list(drawn.epoch(number)) for number in (1, 2))
    assert texts(first) == texts(plain.epoch(1))
    assert texts(second) == texts(plain.epoch(2)) != texts(first)
    assert_same(first, drawn.dataset(1).as_numpy_iterator())
    assert_same(dev.epoch(), plain_dev.epoch())
    tokens = [sum(int((labels != PAD_ID).sum()) for _, labels in x) for x in (first, second)]
    fewest = sum(int((labels != PAD_ID).sum()) for _, labels in plain.epoch(1))
    assert min(tokens) > 1.02 * fewest
    assert tokens[0] != tokens[1]
