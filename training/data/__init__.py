"""Text as data: corpora, splits, tokenizers, and batches of token ids."""
