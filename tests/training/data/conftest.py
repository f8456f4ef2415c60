from unittest.mock import Mock

import pytest


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Empty data and cache folders; downloads fail."""
    monkeypatch.setenv("KERAS_ATTENTION_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    refused = Mock(side_effect=OSError("no network"))
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", refused)
    return tmp_path
