"""Joey NMT's special tokens."""

from types import SimpleNamespace

SYMBOLS = SimpleNamespace(  # the library's own order
    **{"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"},
    **{"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
    **{"sep_token": None, "sep_id": None, "lang_tags": []},
)
