"""Scores of trained models: text metrics, word links, probabilities of outcomes."""
