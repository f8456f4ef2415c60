"""Stage 3 of the data: from token ids to the plan of an epoch and its batches.

`_shapes` chooses the widths of batches, and `_plan` the pairs of each batch.
`_batches.make_batches` is the stage.
"""
