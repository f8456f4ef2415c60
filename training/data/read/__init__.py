"""Stage 1 of the data: from a SPEC to files, lines, pairs and splits."""
