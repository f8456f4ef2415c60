"""A command of fairseq, without its compiled extensions: python -m peers.fairseq_command NAME ...

The installation leaves them out, minutes of compilation. Of them `train`, `preprocess` and
`generate` need the one that fills batches: here in Python.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np


def batches_by_size(
    indices: Sequence[int],
    tokens: Sequence[int],
    most_tokens: int,
    most_sentences: int,
    multiple: int,
) -> list[np.ndarray]:
    """Fill batches in the order of the sentences.

    Args:
        indices: sentences, sorted by length.
        tokens: of each.
        most_tokens: in a batch, padding counted; -1 for any number.
        most_sentences: in a batch; -1 for any number.
        multiple: a batch has a multiple of it, or fewer sentences than it.
    """
    batches, batch, longest = [], [], []
    for index, count in zip(indices, tokens, strict=True):
        size = (len(batch) + 1) * max([*longest, count])
        if batch and (0 < most_tokens < size or len(batch) == most_sentences):
            cut = max(len(batch) // multiple * multiple, len(batch) % multiple)
            batches.append(np.array(batch[:cut]))
            batch, longest = batch[cut:], longest[cut:]
        batch.append(index)
        longest.append(count)
    return [*batches, np.array(batch)]


def by_function(indices: Sequence[int], tokens: Callable[[int], int], *more: int) -> list:
    """Fill batches of sentences whose tokens a function counts."""
    return batches_by_size(indices, [tokens(index) for index in indices], *more)


def main() -> None:
    """Run the command."""
    fast = ModuleType("fairseq.data.data_utils_fast")
    fast.batch_by_size_vec, fast.batch_by_size_fn = batches_by_size, by_function
    fast.batch_fixed_shapes_fast = None  # for TPUs
    sys.modules[fast.__name__] = fast
    command = importlib.import_module(f"fairseq_cli.{sys.argv.pop(1)}")
    command.cli_main()


if __name__ == "__main__":
    main()
