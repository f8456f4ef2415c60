"""Texts, declared."""

from training.sources.kind import Kind

KIND = Kind(
    name="text",
    reader="training.sources.text.source:TextSource",
    unit="pairs",
    specs={
        "tsv:PATH": "source TAB target; further columns are not read",
        "multiref:PATH": "source TAB translation TAB further translation …",
        "parallel:SOURCE,TARGET": "two files, line by line",
        "prepared:DIR": "a corpus of python -m training.prepare --corpus DIR",
    },
    tokens=True,
)
