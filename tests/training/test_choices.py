"""What is chosen for own data: the pages on choices, rows, and the metric that fits."""

import dataclasses
import re
from pathlib import Path

import pytest

from tests.training.data.files import write
from training import train
from training._metric_choice import fitting_metric, misfit
from training.command.errors import UserError
from training.config.schema import Config, override
from training.data.read import _splits as splits
from training.fit import _trial as trial
from training.metrics import METRICS, deciding, figures, is_best, score
from training.presets import _choose as rules
from training.presets import _recognise as recognise
from training.runs import _choices as choices
from training.runs.files import reason_to_stop

DOCS = Path(__file__).parents[2] / "docs"
PAGE, EVIDENCE = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("choices.md", "results/choices.md")
)


@pytest.mark.parametrize(
    ("page", "phrase"),
    [
        (EVIDENCE, f"at most {recognise.LARGEST_ALPHABET} different words"),
        (EVIDENCE, f"Above {100 * recognise.CHANGES:.0f} %, they do not"),
        (EVIDENCE, f"at most {100 * recognise.FEW_NEW:.0f} % of the words in a held-out tenth"),
        (EVIDENCE, f"word occurs fewer than {recognise.RARE} times"),
        (EVIDENCE, f"in fewer than {100 * recognise.FOLLOWS:.0f} % of the pairs"),
        (EVIDENCE, f"at least {recognise.SKIPS} times as many letters"),
        (EVIDENCE, f"at most {recognise._MOST:,} different pairs"),
        (EVIDENCE, f'"Nearly all" means {100 * recognise.NEARLY_ALL:.0f} %'),
        (EVIDENCE, f"nearly all targets have at most {rules.MOST_SPELLED} letters"),
        (EVIDENCE, f"at most {rules.MOST_READ} letters; {rules.MOST_SPELLED} if"),
        (PAGE, f"at most {rules.MOST_READ} letters, or {rules.MOST_SPELLED} if"),
        (PAGE, f"more than {100 * recognise.CHANGES:.0f} % of the pairs"),
        (PAGE, f"at most {trial.MOST_STEPS} steps"),
        (PAGE, f"at least {100 * trial.CLEAR_SHARE:.0f} % of the dev set exactly right"),
        (EVIDENCE, f"Fewer than {rules.FEWEST} pairs"),
        (EVIDENCE, f"From {rules.FEWEST_PRONOUNCED} pairs on, **words with their phones**"),
        (EVIDENCE, f"at most {recognise.LONG_SYMBOL} letters each"),
        (PAGE, f"in less than {100 * recognise.FOLLOWS:.0f} % of the pairs"),
        (PAGE, f"files of fewer than {rules.FEWEST} pairs"),
        (PAGE, f"`g2p-low` below {rules.FEW_PRONOUNCED:,} pairs"),
        (PAGE, f"plus 10, at most {rules.MOST_SPELLED + 100}."),
        (PAGE, f"about {splits.SMALL_DEV} lines; one tenth"),
        (PAGE, f"{100 * splits.DEV_SHARE:.0f} % of large files, at most {splits.MOST_DEV:,} lines"),
    ],
)
def test_pages_have_the_numbers_of_the_code(page, phrase):
    assert phrase in " ".join(page.split())


def test_every_setting_of_the_page_is_a_key():
    keys = {field.name for field in dataclasses.fields(Config)}
    assert set(re.findall(r"--set\s+(\w+)=", PAGE)) <= keys


ROWS = """
batch_size=7 | batches | 7 in a batch | --set batch_size=N
batch_tokens=700 | batches | 700 tokens in a batch | --set batch_tokens=N
keep_epoch=best_score metric=wer | epochs | keeps the epoch with the best wer | keep_epoch
keep_epoch=best_score average_epochs=3 | epochs | , or the mean of the last 3 |
keep_epoch=best_score metric=symbols epochs=100 | epochs | often fewer than 25; keeps | epochs=N
keep_epoch=last metric=symbols epochs=99 | epochs | up to 99; keeps |
keep_epoch=last average_epochs=3 | epochs | ; keeps the mean of the last 3 |
keep_epoch=last epochs=9 | epochs | up to 9; keeps the last epoch | epochs=N
source=events | epochs | keeps the epoch with the best loss on dev | --set epochs=N
attention=none | attention | none | --set attention=NAME
max_answer=4x+20 | answers | at most 4 x the source's tokens + 20 | 4x+20
"""


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_rows_and_ways_out_follow_what_is_set(row):
    settings, name, said, way_out = (cell.strip() for cell in row.split("|"))
    config = override(Config(), settings.split())
    rows = {row[0]: row[1:] for row in choices._settings(config)}
    assert said in rows[name][0]
    assert way_out in rows[name][1]
    assert all(map(config.has_key, re.findall(r"--set (\w+)=", str(rows))))


def test_a_dry_run_prints_the_rows_of_the_page_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [(f"{n:04}X{n % 7}", f"{n % 7} parts of number {n:04}") for n in range(300)]
    write(tmp_path / "own.tsv", rows + [("no tab",)] * 30)
    train.main(["--data", "tsv:own.tsv", "--dry-run"])
    said = capsys.readouterr().out
    assert " pairs, 30 lines without a pair left out  --set" in re.sub(" {3,}", "  ", said)
    shown, expected = (
        [name.strip() for name in re.findall(r"^  (\w[\w ]{0,9}) ", text, re.MULTILINE)]
        for text in (said, PAGE.split("```text\n")[1].split("```")[0])
    )
    assert shown == expected
    assert [path.name for path in tmp_path.iterdir()] == ["own.tsv"]
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    train.main(["--data", "tsv:own.tsv", "--dry-run", "--set", "jit_compile=true"])
    assert re.search(r"^1 shape, 8 × 24: compiling it", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(UserError, match="Remove --dry-run"):
        train.main(["--resume", "--output", "run", "--dry-run"])


# Sentences without spaces between words; some have spaces between phrases.
UNSPACED = {
    "Chinese": ["今天天气很好我们去公园。", "他昨天没有来上班因为生病了。"],
    "Chinese with names": ["我在Google工作了三年。", "Anna和Bob昨天去了北京大学。"],
    "Japanese": ["今日はとても良い天気です。", "私は昨日東京に行きました。"],
    "kana": ["きょうはとてもいいてんきです。", "わたしはねこがすきです。"],
    "half-width kana": ["ｷｮｳﾊﾄﾃﾓｲｲﾃﾝｷﾃﾞｽ｡", "ﾜﾀｼﾊﾈｺｶﾞｽｷﾃﾞｽ｡"],
    "Thai": ["วันนี้อากาศดีมากเราไปสวนแล้วกลับบ้าน", "พรุ่งนี้ ฉันจะไปทำงานที่กรุงเทพ กับเพื่อน ของฉัน สามคน"],
    "Lao": ["ມື້ນີ້ອາກາດດີຫຼາຍພວກເຮົາໄປສວນ", "ມື້ວານນີ້ລາວບໍ່ໄດ້ມາເຮັດວຽກ"],
    "Khmer": ["ថ្ងៃនេះអាកាសធាតុល្អណាស់យើងទៅសួន", "ខ្ញុំចូលចិត្តឆ្មានិងឆ្កែ។"],
    "Burmese": ["ဒီနေ့ရာသီဥတုအရမ်းကောင်းတယ်", "ကျွန်တော်ကြောင်တွေကိုချစ်တယ်။"],
    "Tibetan": ["དེ་རིང་གནམ་གཤིས་ཧ་ཅང་བཟང་པོ་འདུག", "ང་ཚོ་སྤྱི་གླིང་ལ་འགྲོ་གི་ཡིན།"],
    "Ethiopic with wordspaces": ["የኢትዮጵያ፡ሕዝብ፡ነው፡ዛሬ፡ጥሩ፡ቀን።", "እኔ፡ወደ፡ቤት፡እሄዳለሁ፡አሁን።"],
    "Khmer with invisible spaces": [
        "ថ្ងៃ\u200bនេះ\u200bអាកាសធាតុ\u200bល្អ\u200bណាស់\u200bយើង\u200bទៅ\u200bសួន",
        "ខ្ញុំ\u200bចូលចិត្ត\u200bឆ្មា\u200bនិង\u200bឆ្កែ។",
    ],
    "Javanese": ["ꦱꦸꦒꦼꦁꦌꦚ꧀ꦗꦶꦁꦲꦮꦤꦺꦲꦥꦶꦏ꧀ꦢꦶꦤꦲꦶꦏꦶ", "ꦏꦸꦭꦧꦝꦺꦢꦠꦼꦁꦥꦱꦂꦲꦺꦚ꧀ꦗꦁ"],
    "Sanskrit": ["धर्मक्षेत्रेकुरुक्षेत्रेसमवेतायुयुत्सवः", "मामकाःपाण्डवाश्चैवकिमकुर्वतसञ्जयधृतराष्ट्र"],
    "runes": ["ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ᛫ᚠᛁᚱᚪ᛫ᚷᛖᚻᚹᛦᛚᚳᚢᛗ᛫ᛋᚳᛖᚪᛚ᛫ᚦᛖᚪᚻ", "ᛗᚪᚾᚾᚪ᛫ᚷᛖᚻᚹᛦᛚᚳ᛫ᛗᛁᚳᛚᚢᚾ᛫ᚻᛦᛏ᛫ᛞᚫᛚᚪᚾ᛫ᚷᛁᚠ"],
    "Thai and English": ["วันนี้อากาศดีมากเราไปสวนแล้วกลับบ้าน", "The weather is fine today."],
    "Chinese and Thai": ["今天天气很好我们去公园。", "วันนี้อากาศดีมากเราไปสวนแล้วกลับบ้าน"],
}
SPACED = {
    "English": ["The weather is fine today.", "He did not come to work yesterday."],
    "Korean": ["오늘은 날씨가 아주 좋습니다 그래서", "나는 어제 서울에 갔다 왔습니다."],
    "Hindi": ["आज मौसम बहुत अच्छा है।", "मैं कल काम पर नहीं आया।"],
    "Arabic": ["الطقس جميل جدا هذا اليوم", "لم يأت إلى العمل أمس بسبب المرض"],
    "Amharic": ["ዛሬ የአየር ሁኔታው በጣም ጥሩ ነው", "እኔ አሁን ወደ ቤት እሄዳለሁ።"],
    "English with Chinese names": ["The city of 北京 is very large indeed, they said."] * 2,
}


@pytest.mark.parametrize("script", [*UNSPACED, *SPACED])
def test_references_against_themselves_have_the_best_figure_of_their_metric(script):
    texts = (UNSPACED | SPACED)[script]
    references = [[text] for text in texts]
    metric = fitting_metric(references)
    chinese = script in ("Chinese", "Chinese with names")
    assert metric == ("bleu" if script in SPACED else "bleu-zh" if chinese else "chrf")
    found = score(metric, texts, references)
    assert found[deciding(found)] == pytest.approx(100)
    assert is_best(found)
    assert misfit(metric, references) is None
    if script in UNSPACED:
        assert misfit("bleu", references)
    # one letter less in each text is worse, so epochs can be compared
    assert score(metric, [text[:-3] for text in texts], references)[deciding(found)] < 99


@pytest.mark.parametrize(
    ("references", "metric"),
    [
        ([["five"], ["twenty one"], ["two thirds of"]], "exact"),
        ([["five"], ["a b c d"]], "bleu"),
        ([["five"], ["six"], ["a b c d"]], "exact"),
        ([["五"], ["二十"]], "exact"),
        ([["วันนี้"], ["พรุ่งนี้"]], "exact"),
        ([["2024-05-12"], ["192.168.1.1"]], "exact"),
        ([["Donaudampfschifffahrtskapitän"], ["0123456789" * 4]], "exact"),
    ],
)
def test_short_references_are_compared_as_a_whole(references, metric):
    assert fitting_metric(references) == metric
    assert misfit("exact", references) is None


@pytest.mark.parametrize("metric", ["bleu", "bleu-zh", "chrf", "exact", "symbols", "characters"])
def test_training_stops_when_all_of_dev_is_right_by_any_metric(metric):
    """sacrebleu's BLEU of right texts is a little more than 100."""
    texts = ["今天天气很好 a b c d", "他昨天没有来上班 e f g h"]
    right = score(metric, texts, [[text] for text in texts])
    config = override(Config(), [f"metric={metric}", "epochs=9", "keep_epoch=best_score"])
    history = [{"epoch": n, "val_perplexity": 1.5, **right} for n in range(1, 6)]
    assert reason_to_stop(history[:4], config) is None
    assert "All of dev" in reason_to_stop(history, config)


def test_the_best_figure_is_that_of_right_texts():
    texts = ["a b c d e", "f g h i j"]
    for name in METRICS.keys() - {"auc", "auprc", "bleu-zh"}:
        assert METRICS[name].score(texts, [[x] for x in texts]) == pytest.approx(METRICS[name].best)
        assert figures(name)


def test_a_metric_that_does_not_fit_the_dev_targets_is_named_at_the_start(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    signs = "天地玄黄宇宙洪荒日月盈昃辰宿列张"
    texts = ["".join(signs[(7 * n + k * k) % len(signs)] for k in range(9)) for n in range(230)]
    write(tmp_path / "own.tsv", [(f"sentence {n} of many", f"{x}。") for n, x in enumerate(texts)])

    def printed(*settings):
        settings = "source_tokenizer=words", "target_tokenizer=characters", *settings
        words = [word for setting in settings for word in ("--set", setting)]
        train.main(["--data", "tsv:own.tsv", "--dev", "0.3", "--dry-run", *words])
        return capsys.readouterr().out

    said = printed("metric=bleu")
    assert "Warning: metric=bleu does not fit the dev targets: scored against themselves" in said
    assert "they have BLEU 0, not 100" in said
    assert "--set metric=bleu-zh" in said
    said = printed("metric=auto", "keep_epoch=best_score")
    assert "best bleu-zh" in said
    assert "Warning" not in said
