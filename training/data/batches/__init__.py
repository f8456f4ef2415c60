"""Stage 3 of the data: from token ids to the plan of an epoch and its batches."""
