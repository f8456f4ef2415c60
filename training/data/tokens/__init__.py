"""Stage 2 of the data: from pairs to tokenizers and stored token ids.

`tokenizers` works in TensorFlow's graph, on the tokens of `splitting`; `pieces` runs SentencePiece
without TensorFlow. `_vocabularies` trains and checks both. `store` has arrays of ids.
`_encoding.write_tokens` is the stage.
"""
