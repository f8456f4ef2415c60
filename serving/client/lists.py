"""Lists of texts, as clients are given them."""

from collections.abc import Sequence


def checked(texts: Sequence[str]) -> Sequence[str]:
    """Return texts. Raises TypeError for one string."""
    if isinstance(texts, str):
        raise TypeError("expected a list of texts. Received: one string")
    return texts


def check_pairs(texts: Sequence[str], others: Sequence[str], name: str) -> None:
    """Raise ValueError where there are not as many others, which are called `name`, as texts."""
    if len(checked(texts)) != len(checked(others)):
        raise ValueError(f"expected as many {name} as texts, {len(texts)}. Received: {len(others)}")
