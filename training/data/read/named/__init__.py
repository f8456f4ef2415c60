"""The named corpora: which corpora exist, how to read each corpus, and where to download it."""
