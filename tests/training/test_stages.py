import io

from training.progress import stages


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


def test_a_file_shows_nothing(monkeypatch, capsys):
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    with stages("tracing") as tell:
        tell("writing")
    assert log.getvalue() == ""
    assert capsys.readouterr().out == ""
