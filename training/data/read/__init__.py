"""Stage 1 of the data: from a SPEC to files, lines, pairs and splits.

`_specs` parses a SPEC. `_files` reads blocks of lines, `_pairs` makes pairs of them, and `_notes`
has messages on files that look wrong. `named` reads the corpora that have names, and `_manifest`
prepared corpora. `texts.read_texts` is the stage.
"""
