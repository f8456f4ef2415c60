"""Stage 2 of the data: from pairs to tokenizers and stored token ids."""
