"""Fast loops of recurrent cells. They take tensors and functions, not layers."""
