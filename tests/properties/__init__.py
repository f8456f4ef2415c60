"""Properties that hold in every execution of a model, for inputs drawn around each rule and limit.

A kind of source has a file: `test_texts.py` shows the pattern. `executions.py` has what they share.
"""
