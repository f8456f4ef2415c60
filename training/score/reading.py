"""How word links are read from attention weights."""

from __future__ import annotations

from dataclasses import dataclass

METHODS = ("argmax", "threshold")
SYMMETRIZATIONS = ("none", "intersection", "union", "grow-diag")


@dataclass(frozen=True)
class Reading:
    """How links are read from weights.

    Attributes:
        method: "threshold" or "argmax", see `from_weights`.
        threshold: smallest weight of a link, for "threshold".
        shift: the weights of step `i + shift` belong to the target token that step `i` says. In
            Bahdanau's order a step looks before it is told which token was said last, and a
            trained model may look for a token one step before it says it (-1) or after (1).
        symmetrize: "none", "intersection", "union" or "grow-diag", as there.
        tension: lambda of a prior `exp(-lambda * |i / T - j / S|)` that the weights are multiplied
            by, the diagonal tension of Dyer et al. (2013), eq. 3; 0 for none. In long sentences
            weights stray to the same word elsewhere.
    """

    method: str = "threshold"
    threshold: float = 0.45
    shift: int = 0
    symmetrize: str = "none"
    tension: float = 0.0

    def describe(self) -> str:
        """Say in words what is done, beside every AER."""
        whom = "the source word of largest weight"
        if self.method == "threshold":
            whom = f"the source words of weight >= {self.threshold}"
        step = f"the weights of step i{self.shift:+d} for token i; " if self.shift else ""
        prior = f"times exp(-{self.tension:g} |i/T - j/S|); " if self.tension else ""
        both = "not symmetrised"
        if self.symmetrize != "none":
            both = f"{self.symmetrize} with the links read from source to target words"
        return (
            f"force-decoded; {step}{prior}subwords joined to words; each target word is linked to "
            f"{whom}; {both}"
        )
