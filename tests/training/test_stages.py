import contextlib
import io

from training.command.progress import progress, stages
from training.fit.callbacks import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_what_is_done_and_for_how_long(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with stages("tracing [first]") as tell:
        tell("writing")
    assert "writing …" in terminal.getvalue()
    assert "0:00:0" in terminal.getvalue()


def test_work_within_work_that_is_shown_has_no_bar_of_its_own(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress(2, "sentences") as advance:
        with progress(7, "texts tokenized") as within:
            within(7)
        advance(2)
    assert "2/2" in terminal.getvalue()
    assert "7/7" not in terminal.getvalue()
    with progress(5, "lines") as advance:
        advance(5)
    assert "5/5" in terminal.getvalue()


def test_training_that_fails_leaves_no_bar(monkeypatch):
    """Nor does it keep later work from being shown."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with contextlib.suppress(KeyboardInterrupt), Bar() as bar:
        bar.set_params({"steps": 3})
        bar.on_epoch_begin(0)
        bar.on_train_batch_end(0)
        raise KeyboardInterrupt
    assert "1/3" in terminal.getvalue()
    with progress(5, "lines") as advance:
        advance(5)
    assert "5/5" in terminal.getvalue()
