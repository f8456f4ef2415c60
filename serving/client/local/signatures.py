"""The signatures of a translator in this process: those of a SavedModel."""

from __future__ import annotations

from collections.abc import Container

_WORDS = {"words": "string(?, ?)", "word_probabilities": "float(?, ?)"}
INPUTS = {
    "translate": ["text"],
    "nbest": ["text"],
    "align": ["text"],
    "score": ["text", "translation"],
}
_OUTPUTS = {  # with N results
    "translate": {
        "translation": "string(?)",
        "score": "float(?)",
        "truncated": "bool(?)",
        "unknown": "string(?)",
        **_WORDS,
    },
    "nbest": {"translations": "string(?, N)", "scores": "float(?, N)"},
    "align": {
        "translation": "string(?)",
        "source_tokens": "string(?, ?)",
        "target_tokens": "string(?, ?)",
        "attention_weights": "float(?, ?, ?)",
        **_WORDS,
    },
    "score": {
        "score": "float(?)",
        "tokens": "string(?, ?)",
        "log_probs": "float(?, ?)",
        "truncated": "bool(?)",
    },
}


def declared(missing: Container[str], results: int) -> dict[str, dict[str, dict[str, str]]]:
    """Return dtypes and shapes of inputs and outputs, by signature.

    Args:
        missing: signatures that the model lacks.
        results: N, of `nbest`.
    """
    return {
        name: {
            "inputs": dict.fromkeys(inputs, "string(?)"),
            "outputs": {
                alias: about.replace("N", str(results)) for alias, about in _OUTPUTS[name].items()
            },
        }
        for name, inputs in INPUTS.items()
        if name not in missing
    }
