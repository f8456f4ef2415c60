"""The repeatable experiments of `python -m training.study`, one a file."""
