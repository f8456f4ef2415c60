"""Calls of a client that cannot be made as asked, and the wait for a server."""

from serving.client import Translator, protocol, serving_pb2
from tests.attack.test_client import Server, Status, translate


def test_waiting_for_a_server_leaves_the_retries_to_its_requests(monkeypatch):
    monkeypatch.setattr(protocol, "_READY_POLL", 0.001)
    polls = 40

    def starting(method, request, number):
        if number <= polls or number == polls + 2:
            return Status.UNAVAILABLE, "starting"
        if method.endswith("GetModelStatus"):
            status = serving_pb2.GetModelStatusResponse()
            status.model_version_status.add(version=1, state=30)
            return status.SerializeToString()
        return translate(method, request, number)

    with Server(starting) as server, Translator(server.target, "m") as client:
        client.wait_ready(60)
        assert len(server.asked) == polls + 1
        assert client.translate(["a"])[0].text == "A"
    assert len(server.asked) == polls + 3
