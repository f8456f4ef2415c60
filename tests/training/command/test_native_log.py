"""Lines of native code are dropped, and shown where they may say why something failed."""

import os

import pytest

from training.command.native_log import without_native_log


@pytest.mark.parametrize(
    ("raised", "shown"), [(ValueError, "said\n"), (KeyboardInterrupt, ""), (SystemExit, "")]
)
def test_the_log_is_shown_where_an_error_is_raised(raised, shown, monkeypatch, capfd):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")

    def write():
        with without_native_log():
            os.write(2, b"said\n")
            raise raised

    with pytest.raises(raised):
        write()
    assert capfd.readouterr().err == shown
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "later\n"
