"""How good a model is: metrics, links between words, baselines."""
