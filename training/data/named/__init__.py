"""The corpora that have names: which there are, how they are read, where they come from."""
