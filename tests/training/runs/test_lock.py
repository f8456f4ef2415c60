import pytest

from training.command.errors import UserError
from training.command.files import aside_of
from training.runs.files import RunFiles


def test_a_second_process_is_refused_until_the_first_is_done(tmp_path):
    files = RunFiles(tmp_path / "run")
    with files.locked():
        with pytest.raises(UserError, match=r"run is in use by process \d+$"), files.locked():
            pass
        files.config.write_text("")
    with files.locked():
        pass


def test_a_directory_that_did_not_become_a_run_is_removed(tmp_path):
    with pytest.raises(KeyError), RunFiles(tmp_path / "a" / "b").locked():
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    files = RunFiles(tmp_path)
    kept = [files.checkpoint(1), files.recent, tmp_path / "writing"]
    left = [files.checkpoints / "writing-4711", aside_of(files.best)]
    left.append(aside_of(files.recent_weights(1)))
    for path in (*kept, *left):
        path.mkdir(parents=True, exist_ok=True)
    with files.locked():
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in kept)
