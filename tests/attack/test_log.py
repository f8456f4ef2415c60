"""Strangers write no lines of the log, and do not fill it."""

import io
import logging
import signal

import grpc
import pytest

from serving.server import log_lines
from tests.attack.conftest import serving
from tests.serving.conftest import error_of
from tests.serving.test_versions import config, eventually, reload

FORGED = "a\n2026-11-25 00:00:00,000 INFO all is well\x1b[31m\x9b\u202e\r"


@pytest.fixture
def lines():
    """The lines that the server's own handler has written."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    log_lines.log_to(stream)
    yield lambda: stream.getvalue().splitlines()
    root.handlers[:], root.level = before, level


def is_printable(text):
    return text.isascii() and text.isprintable()


def test_a_name_of_a_reload_forges_no_line(base, tmp_path, stubs, lines):
    file = tmp_path / "models.config"
    file.write_text(config(("upper", base, "latest {}", {})))
    with serving(f"--model_config_file={file}") as server:
        client = stubs(f"localhost:{server.port}")
        name = "".join(f"\\{byte:03o}" for byte in FORGED.encode())  # of protobuf's text format
        code, _ = error_of(reload, client, (name, f"{tmp_path}/{name}", "latest {}", {}))
        assert code != grpc.StatusCode.OK
    assert all(is_printable(line) for line in lines())
    assert any("all is well" in line for line in lines())
    assert not any(line.startswith("2026-11-25 00:00:00,000") for line in lines())


def test_errors_are_a_line_each_and_ten_of_a_kind_a_minute(lines, monkeypatch):
    log, now = logging.getLogger("serving.server.test"), [100.0]
    monkeypatch.setattr(log_lines.time, "monotonic", lambda: now[0])

    def fail(number):
        try:
            raise ValueError(FORGED)
        except ValueError:
            log.exception("request %d failed", number)

    for number in range(997):
        fail(number)
    assert len(lines()) == 10
    assert all("Traceback" in line and is_printable(line) for line in lines())
    log.error("another kind")
    for _ in range(23):
        log.info("no error")
    assert len(lines()) == 34
    now[0] += 61
    fail(998)
    assert "request 998 failed (987 like it were left out)" in lines()[-1]


def test_sigusr1_ends_nothing(base, server_process, stubs):
    server = server_process("--model_name=upper", f"--model_base_path={base}")
    server.wait_ready()
    server.process.send_signal(signal.SIGUSR1)
    eventually(lambda: "Current thread" in server.log.read_text())
    assert server.process.poll() is None
