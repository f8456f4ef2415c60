"""What a run directory keeps of training."""

from training.checkpoints import _by_epoch


def test_epochs_come_in_order_and_other_names_are_passed_over(tmp_path):
    for name in ("epoch-010", "epoch-002", "epoch-1000", "epoch-old", "epoch-003-copy", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "epoch-004.weights.h5").touch()
    assert list(_by_epoch(tmp_path)) == [2, 10, 1000]
    assert _by_epoch(tmp_path)[10] == tmp_path / "epoch-010"
    assert list(_by_epoch(tmp_path, ".weights.h5")) == [4]
    assert _by_epoch(tmp_path / "missing") == {}
