"""Keys of texts as sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.command.errors import ConfigError
from training.config.keys import key
from training.config.recurrent import Recurrent

TOKENIZERS = ("sentencepiece", "words", "characters", "letters", "symbols")


@dataclass(frozen=True)
class Text(Recurrent):
    """Texts, see `training.data` and `training.sources.text`."""

    targets: ClassVar[tuple[str, ...]] = ("text",)

    dev: str = key(
        "",
        "what progress is measured on: a SPEC, or of files the share to hold out, such as 0.05; "
        "else the corpus's dev split, or 1 in 50 of the lines, at most 1,000",
    )
    test: str = key(
        "", "what training.evaluate scores: likewise; else the corpus's test split, or nothing"
    )
    extra_data: str = key(
        "",
        "learned from beside data, whole: SPECs between spaces, of other corpora or of made "
        "translations; sources that dev or test have are left out",
    )
    source_tokenizer: str = key("sentencepiece", "how sources are cut", choices=TOKENIZERS)
    source_vocab_size: int = key(8000, "most source tokens there are")
    max_source_length: int = key(60, "pairs with more source tokens are left out")
    join: float = key(
        0.0, "share of batches whose pairs are joined with others, for length", least=0, below=1
    )
    subword_sampling: float = key(
        0.0,
        "power of their probability by which training draws subwords, such as 0.2; 0: not at all",
        least=0,
    )
    batch_tokens: int = key(
        0, "in place of it: tokens in a step, padding too, of the side with more; 0: none", least=0
    )
    copy: bool = key(False, "of words that no vocabulary has, from the source: a pointer-generator")
    copy_hidden: float = key(
        0.0,
        "share of training's pairs whose names and numbers are hidden, so that they are copied",
        least=0,
        below=1,
    )

    def check(self) -> None:
        """Refuse keys that do not go together."""
        if self.copy_hidden and not self.copy:
            raise ConfigError("copy_hidden expected copy. Received: copy = false")
        if self.batch_tokens and self.join:
            raise ConfigError(f"batch_tokens expected join = 0. Received: {self.join}")
        if self.copy and self.join:
            raise ConfigError(f"copy expected join = 0. Received: {self.join}")
