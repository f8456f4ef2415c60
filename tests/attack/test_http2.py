"""Streams of HTTP/2 that nobody means: the server's other clients notice nothing."""

import socket
import threading

import pytest

from serving.client import ServerUnavailableError, Translator
from serving.server import model_server
from tests.attack.conftest import hostile, serving, within


@pytest.fixture
def server(base):
    with serving("--model_name=upper", f"--model_base_path={base}") as server:
        yield server


@pytest.mark.parametrize("reset", [True, False])
def test_streams_that_are_reset_or_not_read_fail_no_good_request(server, reset):
    target = f"127.0.0.1:{server.port}"
    stranger = hostile.Stranger(target, ":0", "upper")
    with Translator(target, "upper", retries=0) as translator:
        translator.translate(["one"])
        attack = threading.Thread(target=stranger.streams, args=(9_000,), kwargs={"reset": reset})
        attack.start()
        answered = 0
        while attack.is_alive():
            with within(5):
                assert translator.translate(["one"])[0].text == "ONE"
            answered += 1
        assert answered


def test_connections_are_bounded(base, monkeypatch):
    monkeypatch.setattr(model_server, "_MOST_CONNECTIONS", 3)
    with serving("--model_name=upper", f"--model_base_path={base}") as server:
        address = "127.0.0.1", server.port
        others = [socket.create_connection(address) for _ in range(3)]
        with Translator(f"127.0.0.1:{server.port}", "upper", retries=0, timeout=20) as refused:
            with pytest.raises(ServerUnavailableError):
                refused.translate(["one"])
            others.pop().close()
            refused.wait_ready(20)
            assert refused.translate(["one"])[0].text == "ONE"
        for connection in others:
            connection.close()
