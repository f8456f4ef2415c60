"""Searches and forced decoding: every execution answers one table of cases as loops do."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from serving.check._onnx import check_folder
from serving.client import SignatureNotFoundError
from serving.export._modules import ExportedReader, traced
from serving.export._texts import Exported
from serving.export._version import export
from serving.portable.read import LocalReader, LocalTranslator
from serving.portable.read._pixels import read_image
from serving.portable.read._pronouncer import Pronouncer
from tests.serving.javascript import NODE, ask_model, needs_node
from tests.serving.onnx_program import Program
from tests.serving.portable.searches import CASES, Answer, Case, asker, by_loop
from training.data.rules import most_tokens
from training.data.tokens.store import END_ID, PAD_ID, START_ID, Sequences
from training.decode.search import bound_of, search
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest
from training.decode.windows import spelling_of
from training.runs.run import load_run
from training.sources.image import _digits as digits

SLOW = {"short windows", "windows of three", "endless"}  # few changes touch what they add
PARAMS = [pytest.param(x, marks=pytest.mark.slow) if x in SLOW else x for x in CASES]


@pytest.fixture(scope="module", params=PARAMS)
def case(request, tmp_path_factory):
    return Case(*CASES[request.param](tmp_path_factory.mktemp("case")))


@pytest.fixture(scope="module")
def version(case, tmp_path_factory):
    folder = tmp_path_factory.mktemp("version") / "model"
    return export([case.run], folder, form="onnx", **case.settings)


@pytest.fixture(scope="module")
def signatures(case):
    """Those of the SavedModel that answer otherwise than one another."""
    module = Exported([case.run], case.search)
    strings = (None,), "string"
    text = {"text": strings}
    found = {name: traced(getattr(module, name), text) for name in ("nbest", "align")}
    if module.scores:
        found["score"] = traced(module.score, {**text, "translation": strings})
    return found


@pytest.fixture(scope="module")
def wanted(case, signatures):
    """The answers of a loop; of windows those of the SavedModel, which other programs have, too."""
    if spelling_of([case.run]):
        found = by_saved_model(case, None, signatures)
        return [Answer(**each) for each in found]
    ask = asker(case)
    return [by_loop(case, ask, text) for text in case.sources]


def by_keras(case, version, signatures):
    found = make_nbest([case.run], case.search)(case.sources)
    return [{"texts": [x.text for x in one], "scores": [x.score for x in one]} for one in found]


def by_saved_model(case, version, signatures):
    given = tf.constant(case.sources)
    several, aligned = (
        {name: x.numpy() for name, x in signatures[signature](text=given).items()}
        for signature in ("nbest", "align")
    )
    for row, scores in enumerate(several["scores"]):
        tokens, source = (
            [token.decode() for token in aligned[f"{side}_tokens"][row] if token]
            for side in ("target", "source")
        )
        sure = aligned["word_probabilities"][row]
        yield {
            "texts": [text.decode() for text in several["translations"][row]],
            "scores": scores,
            "source": source,
            "tokens": tokens,
            "weights": aligned["attention_weights"][row, : len(tokens), : len(source)],
            "least": min(sure[sure > 0], default=1.0),
            "truncated": aligned["truncated"][row],
        }


def by_python(case, version, signatures):
    model = LocalTranslator(version, batch_size=5)
    pairs = zip(model.nbest(case.sources), model.align(case.sources), strict=True)
    for several, aligned in pairs:
        yield {
            "texts": [each.text for each in several],
            "scores": [each.score for each in several],
            "source": [*aligned.source_tokens],
            "tokens": [*aligned.target_tokens],
            "weights": aligned.attention_weights,
            "least": min(aligned.word_probabilities, default=1.0),
            "truncated": aligned.truncated,
        }


def by_javascript(case, version, signatures):
    if case.names_words:
        pytest.skip("its search has neither copies nor replacements")
    for each in ask_model(version, texts=case.sources):
        best, *_ = several = each["hypotheses"]
        none = {"text": "", "score": -np.inf}  # as many as the others answer
        several = [*several, *[none] * (case.search.num_results - len(several))]
        yield {
            **{name: [one[name[:-1]] for one in several] for name in ("texts", "scores")},
            **{name: best[name] for name in ("tokens", "weights")},
            "source": each["tokens"],
            "least": min(each["word_probabilities"], default=1.0),
            "truncated": each["truncated"],
        }


def by_a_program(case, version, signatures):
    """One that is written from the page on ONNX folders."""
    program = Program(version)
    for source in case.sources:
        text, score = program.translate(source.replace("\x00", ""))
        yield {} if "\x00" in source else {"texts": text, "scores": score}


def assert_alike(found, wanted, source):
    """Compare fields; one text and score are compared with the best."""
    for name, value in found.items():
        expected = getattr(wanted, name)
        if name in ("texts", "scores") and not isinstance(value, list | np.ndarray):
            expected = expected[0]
        if name in ("scores", "weights", "least"):
            value = np.reshape(value, np.shape(expected))
            np.testing.assert_allclose(value, expected, atol=1e-4, err_msg=source)
        else:
            assert value == expected, (source, name)


in_node = pytest.param(by_javascript, marks=needs_node)


@pytest.mark.parametrize("execution", [by_keras, by_saved_model, by_python, in_node, by_a_program])
def test_a_search_answers_as_the_loop(case, version, signatures, wanted, execution):
    answers = execution(case, version, signatures)
    for source, found, each in zip(case.sources, answers, wanted, strict=True):
        assert_alike(found, each, source)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["phrases", "windows with tags", "short windows"], indirect=True)
def test_xla_answers_as_the_loop(case, wanted, monkeypatch):
    monkeypatch.setattr(type(case.run.config), "compiles", lambda config: True)
    answers = by_keras(case, None, None)
    for source, found, each in zip(case.sources, answers, wanted, strict=True):
        assert_alike(found, each, source)


def test_forced_decoding_answers_as_the_model_that_reads_the_whole_target(
    case, version, signatures, wanted
):
    model = LocalTranslator(version)
    assert ("score" in model.signatures()) == ("score" in signatures) == (not case.run.config.copy)
    sources = case.sources[:3]
    said = [*(answer.texts[-1] for answer in wanted[1:3]), ""]
    if case.run.config.copy:
        with pytest.raises(SignatureNotFoundError, match="no score: what it copies"):
            model.score(sources, said)
        return
    saved = signatures["score"](text=tf.constant(sources), translation=tf.constant(said))
    saved = {name: x.numpy() for name, x in saved.items()}
    for row, (source, target, found) in enumerate(
        zip(sources, said, model.score(sources, said), strict=True)
    ):
        gains = by_reading(case, source, target)
        np.testing.assert_allclose(found.log_probs, gains, atol=1e-4, err_msg=source)
        score = sum(gains) / ((5 + len(gains)) / 6) ** case.search.length_penalty
        np.testing.assert_allclose(found.score, score, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(saved["log_probs"][row, : len(gains)], gains, atol=1e-4)
        np.testing.assert_allclose(saved["score"][row], found.score, rtol=1e-4, atol=1e-4)
        assert found.tokens == tuple(x.decode() for x in saved["tokens"][row] if x)
        assert found.tokens[-1] == "</s>"
        assert found.truncated == saved["truncated"][row]


def test_the_score_of_an_answer_is_its_score(case, version, signatures):
    """Of a long word, too, which is read by windows; the best answer's score is translate's."""
    if case.run.config.copy or case.search.replaces_unknown:
        return
    model = LocalTranslator(version)
    several = model.nbest(case.sources)
    best = model.translate(case.sources)
    assert [each.score for each in best] == pytest.approx([one.score for one, *_ in several])
    pairs = [
        (source, each.text, each.score)
        for source, answers in zip(case.sources, several, strict=True)
        for each in answers
        if source and -np.inf < each.score
    ]
    sources, texts, scores = map(list, zip(*pairs, strict=True))
    saved = signatures["score"](text=tf.constant(sources), translation=tf.constant(texts))
    found = model.score(sources, texts)
    read = model._found_by_windows(model._read(sources))
    for row, (wanted, one) in enumerate(zip(scores, found, strict=True)):
        np.testing.assert_allclose(saved["score"].numpy()[row], one.score, atol=1e-4)
        gains = saved["log_probs"].numpy()[row, : len(one.log_probs)]
        np.testing.assert_allclose(gains, one.log_probs, atol=1e-4)
        ids = tuple(case.run.target_tokenizer.tokenize([texts[row]]).to_list()[0])
        if (*ids, END_ID) in read.get(row, ()):  # an answer that is cut has no end
            np.testing.assert_allclose(one.score, wanted, atol=1e-4, err_msg=texts[row])
    scores = [[each.score for each in answers] for answers in several]
    assert all(sorted(each, reverse=True) == each for each in scores)


def by_reading(case, source, target):
    """The log-probabilities of a target's tokens, as training has them: all in one call."""
    most = case.search.max_source_length
    longest = most_tokens(most, bound_of([case.run]))
    ids = case.run.source_tokenizer.tokenize(tf.constant([source])).to_list()[0][:most]
    said = case.run.target_tokenizer.tokenize(tf.constant([target])).to_list()[0]
    said = [*said[: longest - 1], END_ID]
    if not ids and len(said) == 1:
        return [0.0]  # nothing is translated as nothing
    given = {"source": np.array([[*ids, PAD_ID]]), "target": np.array([[START_ID, *said[:-1]]])}
    logits = np.array(case.run.model(given)[0], "float64")
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return logits[np.arange(len(said)), said]


def test_long_words_are_spelled_by_the_lengths_that_training_had(case, version, wanted):
    spelling = spelling_of([load_run(case.run.path)])
    if case.run.config.target_tokenizer != "symbols":
        assert spelling is None
        return
    source = Sequences.open(case.run.files.tokens, "train.source")
    letters, phones = source.lengths, Sequences.open(case.run.files.tokens, "train.target").lengths
    if spelling.tag:
        tokens = case.run.source_tokenizer.tokens(tf.constant(source.values, "int32")).numpy()
        text = b"".join(tokens).decode()  # of ASCII letters
        words = [text[at : at + n] for at, n in zip(source.starts, source.lengths, strict=True)]
        tags = [len(word) - len(re.sub(r"^\[[^]]*\] ?", "", word)) for word in words]
        assert spelling.tag["longest"] == max(tags) == 7
        letters = letters - tags
        about = json.loads(case.run.files.origin.read_text())
        case.run.files.origin.write_text(json.dumps({k: about[k] for k in about if k != "tag"}))
        assert spelling_of([case.run]) == spelling._replace(tag=None)
        case.run.files.origin.write_text(json.dumps(about))
    assert spelling.whole == letters.max() == np.sort(letters)[int(0.99 * (len(letters) - 1))]
    assert spelling.window == min(12, spelling.whole)
    assert spelling.context == {13: 3, 8: 2, 3: 0}[spelling.whole]
    assert spelling.fewest == pytest.approx(np.quantile(phones / letters, 0.002)) == 1.0
    for word, (best,) in Pronouncer(version).pronounce(case.sources):
        phones = wanted[case.sources.index(word)].texts[0]
        assert " ".join(best.phones) == phones or not phones  # of silence the next is taken
    case.run.files.origin.rename(case.run.path / "aside")  # as of a run of an earlier version
    assert spelling_of([case.run]) is None
    (case.run.path / "aside").rename(case.run.files.origin)


def test_the_check_of_an_export_finds_nothing(case, version):
    if case.names_words:
        assert check_folder(version, case.run.path) == []


@pytest.mark.parametrize("run_of", ["image_run", pytest.param("line_run", marks=pytest.mark.slow)])
def test_images_are_read_as_by_the_loop(run_of, request, onnx_reader, tmp_path):
    run = request.getfixturevalue(run_of)
    if run_of == "line_run":
        onnx_reader = export([run], tmp_path / "digits", form="onnx", beam_width=3)
    images = digits.make(5, seed=9).sources
    settings = SearchSettings(beam_width=3, num_results=3)
    target, pixels = run.target_tokenizer, run.source.rows(images).values
    most = {"max_length": run.config.max_target_length, "return_attention_weights": True}
    result = search([run.model], pixels, settings, **most)
    module, local = ExportedReader([run], settings), LocalReader(onnx_reader, num_results=3)
    regions, several = (
        {name: x.numpy() for name, x in ask(image_bytes=tf.constant(images)).items()}
        for ask in (module.regions, module.nbest)
    )
    size = [local.manifest["source"][name] for name in ("height", "width", "channels")]
    given = [read_image(image, *size).ravel().tolist() for image in images]
    answers = ask_model(onnx_reader, images=given) if NODE else [None] * len(images)
    rows = zip(local.regions(images), local.nbest(images), answers, strict=True)
    for row, (found, others, node) in enumerate(rows):
        ids, log_probs = result.ids[row].numpy(), result.log_probs[row].numpy()
        shown = [n for n, number in enumerate(ids[0]) if number not in (PAD_ID, START_ID, END_ID)]
        wanted = Answer(
            [text.decode() for text in target.detokenize(tf.constant(ids)).numpy()],
            result.scores[row].numpy(),
            [],
            [x.decode() for x in target.tokens(tf.constant(ids[0][shown])).numpy()],
            result.attention_weights[row, 0].numpy()[shown],
            np.exp(log_probs[0][shown]),
            False,
        )
        python = {
            **{name: [getattr(x, name[:-1]) for x in others] for name in ("texts", "scores")},
            "tokens": [*found.tokens],
            "weights": found.attention_weights,
            "least": found.token_probabilities,
        }
        saved = {
            "texts": [text.decode() for text in several["texts"][row]],
            "scores": several["scores"][row],
            "tokens": [x.decode() for x in regions["tokens"][row] if x],
            "weights": regions["attention_weights"][row, : len(shown)],
            "least": regions["token_probabilities"][row, : len(shown)],
        }
        found = [python, saved]
        if node:
            found.append({name: node[name] for name in ("tokens", "weights")})
            found[-1] |= {
                "texts": node["hypotheses"][0]["text"],
                "least": node["token_probabilities"],
            }
        for each in found:
            assert_alike(each, wanted, f"image {row}")
