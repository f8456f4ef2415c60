"""Fast forms of loops, scores and choices, over tensors and callables alone."""
