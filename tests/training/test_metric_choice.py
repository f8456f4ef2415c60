import pytest

from training import train
from training._metric_choice import fitting_metric, misfit
from training.config.schema import Config, override
from training.metrics import METRICS, deciding, figures, is_best, score
from training.runs.files import reason_to_stop

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
    "Sanskrit without spaces": [
        "धर्मक्षेत्रेकुरुक्षेत्रेसमवेतायुयुत्सवः",
        "मामकाःपाण्डवाश्चैवकिमकुर्वतसञ्जयधृतराष्ट्र",
    ],
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
    for name, metric in METRICS.items():
        if name not in ("auc", "auprc", "bleu-zh"):
            texts = ["a b c d e", "f g h i j"]
            assert metric.score(texts, [[text] for text in texts]) == pytest.approx(metric.best)
            assert figures(name)


def test_a_metric_that_does_not_fit_the_dev_targets_is_named_at_the_start(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    signs = "天地玄黄宇宙洪荒日月盈昃辰宿列张"
    sentences = ["".join(signs[(7 * n + k * k) % len(signs)] for k in range(9)) for n in range(230)]
    lines = [f"sentence {n} of many\t{text}。\n" for n, text in enumerate(sentences)]
    (tmp_path / "own.tsv").write_text("".join(lines))
    small = ["--set", "source_tokenizer=words", "--set", "target_tokenizer=characters"]
    command = ["--data", "tsv:own.tsv", "--dev", "0.3", "--dry-run", *small]
    train.main([*command, "--set", "metric=bleu"])
    said = capsys.readouterr().out
    assert "Warning: metric=bleu does not fit the dev targets: scored against themselves" in said
    assert "they have BLEU 0, not 100" in said
    assert "--set metric=bleu-zh" in said
    train.main([*command, "--set", "metric=auto", "--set", "keep_epoch=best_score"])
    said = capsys.readouterr().out
    assert "best bleu-zh" in said
    assert "Warning" not in said
