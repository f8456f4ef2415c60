"""Shared by the PyTorch peers: a training round, with Adam in one kernel, and lower precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch


def precision(form: Sequence[str]) -> torch.autocast:
    """Within it products are in bfloat16 if the form is "bfloat16"."""
    return torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in form)


def training_round(
    model: torch.nn.Module,
    batches: Iterable[Any],
    loss: Callable[[Any], torch.Tensor],
    form: Sequence[str] = (),
) -> Callable[[], None]:
    """A function that trains on every batch once.

    Args:
        model: what has the weights.
        batches: whatever `loss` takes.
        loss: from a batch to the mean cross-entropy of its labels.
        form: "bfloat16" for autocast, "compiled" for `torch.compile`, both or none.
    """
    if "compiled" in form:
        loss = torch.compile(loss)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    batches = list(batches)
    model.train()

    def round_() -> None:
        for batch in batches:
            optimizer.zero_grad(set_to_none=True)
            with precision(form):
                found = loss(batch)
            found.backward()
            optimizer.step()
            found.item()

    return round_


def forbid_special_tokens(bias: torch.Tensor, count: int) -> None:
    """Let an output layer's bias never choose the first `count` tokens, nor prefer any other."""
    with torch.no_grad():
        bias.zero_()
        bias[:count] = -1e4
