"""Data as batches of token ids: three stages, and rules about texts that the client has, too."""
