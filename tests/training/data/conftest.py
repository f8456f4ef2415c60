import pytest


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Empty data and cache folders; downloads fail."""

    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setenv("KERAS_ATTENTION_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", refuse)
    return tmp_path
