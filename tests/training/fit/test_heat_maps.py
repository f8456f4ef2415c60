"""Heat-maps in TensorBoard."""

import dataclasses
import warnings

from training.data.pair_files import Split
from training.fit.heat_maps import HeatMaps


def test_a_missing_font_is_told_once_in_a_training(tiny_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("keras_attention.plot.CJK_FONTS", ())
    texts = ["나는 사과를 먹는다", "그는 잔다", "우리는 간다", "너는 온다"]
    run = dataclasses.replace(tiny_run, path=tmp_path)
    maps = HeatMaps(run, Split(texts, [[text] for text in texts]))
    attend = maps.attend
    monkeypatch.setattr(
        maps,
        "attend",
        lambda sources, targets: [
            dataclasses.replace(
                found,
                source_tokens=list(
                    text[: len(found.source_tokens)].ljust(len(found.source_tokens))
                ),
            )
            for found, text in zip(attend(sources, targets), sources, strict=True)
        ],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(3):
            maps.on_epoch_end(epoch)
    said = capsys.readouterr().err
    assert said.count("no installed font has") == 1
    assert said.startswith("Warning: heat-maps: no installed font has ")
    assert "such as Noto Sans CJK" in said
    assert said.count("\n") == 1
    assert list((tmp_path / "tensorboard" / "alignments").iterdir())
