"""SavedModels of runs: one file for each kind of source, and the weights that all have."""
