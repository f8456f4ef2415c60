"""Things that a stranger may not make grow: metrics, and graphs that TensorFlow prepares."""

import itertools

import grpc

from tests.attack.conftest import ask, tensor_request
from tests.serving.conftest import error_of
from tests.serving.test_versions import request


def test_names_that_were_only_asked_for_are_no_labels(victim, stubs):
    client = stubs(f"localhost:{victim.port}")
    _, before = ask(victim.rest_port, "/metrics")
    for number in range(3):
        made = request(f"{number}" + "x" * 8_000_000)
        assert error_of(client.prediction.Predict, made)[0] == grpc.StatusCode.NOT_FOUND
    for number in range(20):
        assert ask(victim.rest_port, f"/v1/models/m{number}:predict", {"instances": [1]})[0] == 404
        assert error_of(client.prediction.Predict, request(f"n{number}"))
    _, after = ask(victim.rest_port, "/metrics")
    assert len(after) < len(before) + 20_000
    lines = dict(line.rsplit(" ", 1) for line in after.splitlines())
    unknown = ':tensorflow:serving:request_count{model_name="",status="NOT_FOUND"}'
    assert int(lines[unknown]) >= 43


def test_every_output_filter_runs_the_same_graph(victim, stubs, monkeypatch):
    servable = victim._manager._models["upper"].versions[1].servable
    session = servable.model.session
    seen = set()
    run = session.run

    def spy(signature, inputs, outputs=(), *rest, **options):
        found = run(signature, inputs, outputs, *rest, **options)
        seen.add(tuple(found))
        return found

    monkeypatch.setattr(session, "run", spy)
    fetched = []
    original = session._output

    def output(name):
        fetched.append(name)
        return original(name)

    monkeypatch.setattr(session, "_output", output)
    client = stubs(f"localhost:{victim.port}")
    aliases = list(session.signatures["align"].outputs)
    asked = [c for n in (1, 2) for c in itertools.permutations(aliases, n)]
    sets = set()
    for choice in asked:
        fetched.clear()
        made = tensor_request(dims=[1], string_val=[b"a b"], signature="align")
        made.output_filter.extend(choice)
        assert set(client.prediction.Predict(made).outputs) == set(choice)
        sets.add(tuple(fetched))
    assert len(sets) == 1
    assert len(seen) > 1
