"""The keys of a simulated user, and how often a model is right that says how sure it is."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.training.conftest import no_pictures, terse_run  # noqa: F401 - fixtures

pytestmark = pytest.mark.tensorflow


class Scripted:
    """Knows the references, and errs at some words unless it was told them; "☃" has no tokens."""

    def __init__(self, references, wrong, more=()):
        self.references, self.wrong, self.more = references, wrong, more

    def translate(self, texts):
        return self.complete(texts, [""] * len(texts))

    def complete(self, texts, prefixes):
        return [self._one(int(text), prefix) for text, prefix in zip(texts, prefixes, strict=True)]

    def _one(self, row, prefix):
        if "☃" in prefix:
            return None
        words, begun = self.references[row].split(), prefix.split()
        rest = ["?" if n in self.wrong[row] else x for n, x in enumerate(words) if n >= len(begun)]
        ended = len(begun) == len(words)
        return " ".join([*begun, *rest, *(["more"] if row in self.more and not ended else [])])


@pytest.mark.parametrize(
    ("wrong", "more", "typed"),
    [
        ([(), (), ()], (), 0),
        ([(0, 3), (1,), ()], (), 3),  # every wrong word is typed
        ([(), (), ()], (1,), 1),  # so is the end, where the translation goes on
        ([(1,), (), (1,)], (), 1 + 3),  # what no tokens spell, and all after it
    ],
)
def test_a_user_types_what_is_wrong(wrong, more, typed):
    from benchmarks import interactive

    references = ["a b c d e", "f g h", "i ☃ k l"]
    model = Scripted(references, wrong, more)
    found = interactive.strokes(model, ["0", "1", "2"], references)
    assert found["word_stroke_ratio"] == pytest.approx(typed / 12)
    changed = sum(map(len, wrong)) + len(more)
    assert found["post_editing_ratio"] == pytest.approx(changed / 12)


def test_the_second_half_is_scored_where_the_first_can_be_spelled():
    from benchmarks import interactive

    references = ["a b c d e f g h i j", "☃ l m n o p q r s t", "u v w x y z A B C D"]
    model = Scripted(references, [(7,), (7,), ()])
    found = interactive.halves(model, ["0", "1", "2"], references)
    assert (found["sentences"], found["cannot_be_spelled"]) == (2, 1)
    assert found["bleu_of_the_rest"] == pytest.approx(found["bleu_of_the_rest_plain"])
    assert 0 < found["bleu_of_the_rest"] < 100


def test_the_second_half_of_chinese_is_cut_into_characters():
    from benchmarks import interactive
    from training.score.metrics import score

    references = ["她 在 吃 一 个 绿 苹 果 。", "他 在 睡 觉 。"]
    model = Scripted(references, [(5,), (3,)])
    found = interactive.halves(model, ["0", "1"], references, "bleu-zh")
    plain = [text.replace(" ", "") for text in model.translate(["0", "1"])]
    wanted = score("bleu-zh", plain, [[text.replace(" ", "")] for text in references])
    assert found["bleu_plain"] == pytest.approx(wanted["bleu"])


def test_a_space_that_is_read_rightly_is_right(monkeypatch):
    import tensorflow as tf

    from benchmarks import reliability

    class Reader:
        def __init__(self, runs):
            pass

        def read(self, image_bytes):
            tokens = tf.repeat([[*"a b"]], tf.size(image_bytes), 0)
            return {"tokens": tokens, "token_probabilities": tf.fill(tf.shape(tokens), 0.5)}

    monkeypatch.setattr(reliability, "ExportedReader", Reader)
    split = SimpleNamespace(sources=[b"", b""], references=[["a b"], ["a c"]])
    run = SimpleNamespace(config=SimpleNamespace(data=""), source=None)
    run.source = SimpleNamespace(load_split=lambda *_, **__: split)
    right, _ = reliability.reliability(reliability.characters(run, 9))
    assert right.tolist() == [1, 1, 1, 1, 1, 0]


def test_a_word_is_right_where_the_reference_has_it_in_order():
    from benchmarks import reliability

    pairs = [
        (([b"the", b"cat", b"sat"], [0.9, 0.5, 0.7]), [b"the", b"dog", b"sat"]),
        (([b"b", b"a"], [0.2, 0.3]), [b"a", b"b"]),
        (([], []), [b"x"]),
    ]
    right, sure = reliability.reliability(iter(pairs))
    np.testing.assert_array_equal(sure, [0.9, 0.5, 0.7, 0.2, 0.3])
    assert right[:3].tolist() == [1, 0, 1]
    assert sorted(right[3:]) == [0, 1]


def test_both_commands_run(terse_run, tmp_path, capsys):  # noqa: F811
    from benchmarks import interactive, reliability
    from serving.export.version import export

    version, run = export([terse_run], tmp_path / "terse"), str(terse_run.path)
    sizes = ["--limit", "5", "--timed", "5"]
    interactive.main(["--run", run, "--model", str(version), *sizes])
    halves, times, typed = map(json.loads, capsys.readouterr().out.splitlines())
    assert halves["sentences"] + halves["cannot_be_spelled"] == 5
    assert times["ratio"] > 0
    assert typed["word_stroke_ratio"] > 0
    reliability.main(["--run", run, "--limit", "5", "--png", str(tmp_path / "x.png")])
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert 0 <= found["calibration_error"] <= 1
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
