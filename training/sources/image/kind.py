"""Images, declared."""

from training.sources.kind import Kind

KIND = Kind(
    name="image",
    reader="training.sources.image.source:ImageSource",
    unit="images",
    specs={"images:PATH": "a folder of PNG or JPEG files with labels.tsv: file TAB text"},
    own="images",
)
