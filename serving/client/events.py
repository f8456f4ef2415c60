"""Models of histories: the clients, blocking and asyncio, their requests and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serving.client.answers import NUMBER, NUMBERS, read_outputs
from serving.client.arguments import checked_items
from serving.client.histories import TIME, History, history_columns, padded_columns
from serving.client.protobuf import Message, input_tensors
from serving.client.protocol import Endpoint, Steps
from serving.client.results import Prediction
from serving.client.transport import AsyncClient, Client, Question


def write_histories(histories: Sequence[dict[str, list[float]]]) -> dict[str, Message]:
    """The inputs of a request, `(B, T)` each; past the end of a history all is NaN."""
    return input_tensors(padded_columns(histories))


def read_predictions(response: Message, count: int) -> list[Prediction]:
    """Answers of the signature `predict`, one for each history; weights still have padding."""
    if "attention_weights" in response.outputs:
        expected = {"probability": NUMBER, "attention_weights": NUMBERS}
        probabilities, weights = read_outputs(response, count, **expected)
    else:
        (probabilities,) = read_outputs(response, count, probability=NUMBER)
        weights = [()] * count
    return [
        Prediction(probability, tuple(row))
        for probability, row in zip(probabilities, weights, strict=True)
    ]


class _Predictors(Endpoint):
    """The methods of both clients of a model of histories."""

    @Question
    def outcome(
        self, histories: Sequence[History], ignore: bool = False
    ) -> Steps[list[Prediction]]:
        """The probability of each history's outcome; `ignore` leaves out unknown columns."""
        histories = checked_items(histories, "histories")
        metadata = yield from self._metadata()
        inputs = list(metadata.signatures.get("predict", {}).get("inputs", {TIME: ""}))
        rows = [history_columns(history, inputs, ignore) for history in histories]
        predictions = yield from self.predict(
            "predict", rows, write_histories, read_predictions, lambda row: len(row[TIME])
        )
        return [
            replace(answer, attention_weights=answer.attention_weights[: len(row[TIME])])
            for answer, row in zip(predictions, rows, strict=True)
        ]


class Predictor(_Predictors, Client):
    """A model of histories on a model server; arguments as of `serving.client.protocol.Endpoint`.

    A history is a dict of columns, "time" among them, each a list with a value for each event; see
    `history_columns`. Use as a context manager, or `close()`. Threads may share it.
    """


class AsyncPredictor(_Predictors, AsyncClient):
    """`Predictor` for asyncio: the same arguments, its methods are coroutines."""
