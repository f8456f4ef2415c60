"""Chinese in one script where a text mixes two."""

from functools import lru_cache
from typing import Any


def simplified(text: str) -> str:
    """Write Traditional Chinese characters as Simplified ones; all other characters stay.

    By OpenCC's dictionaries of words and characters, which know that 後天 is 后天 and 皇后 stays
    皇后. Of its two, `tw2s` alone knows the Taiwanese particle 著 (now 着), and `t2s` alone leaves
    the Simplified particle 么 as it is.
    """
    return _converter("tw2s" if "著" in text else "t2s").convert(text)


@lru_cache
def _converter(dictionary: str) -> Any:
    import opencc

    return opencc.OpenCC(dictionary)
