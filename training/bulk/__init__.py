"""A corpus of any size, cleaned and tokenised once: training.prepare --corpus."""
