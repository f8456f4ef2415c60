"""Recurrent cells that attend, and the layers that run them."""
