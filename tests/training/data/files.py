"""Helpers that tests of corpora share: files that are made."""

import gzip

import numpy as np

from training.data.tokens._vocabularies import train_state
from training.data.tokens.tokenizers import load_tokenizer, tokenizer_of


def lines_of(rows):
    """Rows of columns as lines with tabs."""
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def write(path, content):
    """Write bytes, a text, or rows of columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, bytes | str) else lines_of(content)
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def train_tokenizer(kind, lines, size):
    """A tokenizer as a run trains that of its sources."""
    return tokenizer_of(train_state("source", kind, size, lines))


def write_sides(folder, rows):
    """Write the columns of rows into two files; return what names them as data."""
    sides = zip(*rows, strict=True)
    files = [write(folder / n, lines_of(zip(s))) for n, s in zip(("s", "t"), sides, strict=True)]
    return f"parallel:{files[0]},{files[1]}"


def spelled(prepared, split="train", rows=None):
    """The pairs of a split of a prepared corpus, spelled by their ids; `rows` or all."""
    sides = []
    for file, ids in zip(prepared.tokenizers, prepared.sides(split), strict=True):
        chosen = np.arange(len(ids.lengths)) if rows is None else rows
        texts = load_tokenizer(file).detokenize(ids.select(chosen[:, None], 999).padded())
        sides.append([text.decode() for text in texts.numpy()])
    return list(zip(*sides, strict=True))


LEXICON = [("read", "R IY D"), ("read", "R EH D"), ("d'or", "D AO R"), ("c", "S IY")]
# The same list as each program writes it; the notes are those of their own files.
DICTIONARIES = {
    "cmudict-0.7b": ";;; # CMUdict\n## a\nread  R IY D\nread(1)  R EH D\nd'or  D AO R\nc  S IY\n",
    "cmudict": "read R IY D\nread(2) R EH D # past tense, as red\nd'or D AO R # french\nc S IY\n",
    "kaldi": "read R IY D\nread R EH D\nd'or D AO R\nc S IY\n",
    "lexiconp": "read 1.0 R IY D\nread 0.25 R EH D\nd'or 1.0 D AO R\nc 1.0 S IY\n",
    "kaldi, tabs": "read\t1.0 R IY D\nread\t0.25 R EH D\nd'or\t1.0\tD AO R\nc\tS IY\n",
    "mfa": "read\tR IY D\nread\tR EH D\nd'or\tD AO R\nc\tS IY\n",
    "mfa's probabilities": "read\t0.99\t0.2\t1.0\t1.0\tR IY D\nread\t0.03\t0.1\t1.2\t0.9\tR EH D\n"
    "d'or\t1e-3\tD AO R\nc\t1\tS IY\n",
    "pocketsphinx": "read\tR IY D\nread(2)\tR EH D\nd'or\tD AO R\nc\tS IY\n",
    "in quotes": '"read"\t"R IY D"\n"read(2)"\t"R EH D"\n"d\'or"\t"D AO R"\n"c"\t"S IY"\n',
    "words and numbers apart": "read  R IY D\nread  (2)  R EH D\nd'or  D AO R\nc  S IY\n",
    "tabs and spaces": "read \t R IY D\nread(2)\t  R EH D \nd'or\tD AO R\nc\tS IY\n",
    "comments of other signs": "// a\n; b\nread R IY D # now\nread R EH D // past\n"
    "d'or D AO R\nc S IY\n",
    "languages": "read[en]\tR IY D\nread[en]\tR EH D\nd'or[fr]\tD AO R\nc\tS IY\n",
    "lexiconp of whole numbers": "read 1 R IY D\nread 0.25 R EH D\nd'or 1 D AO R\nc 0 S IY\n",
    "lexiconp_silprob": "read 1 0.2 1.1 0.9 R IY D\nread 0.3 0.2 1 1 R EH D\n"
    "d'or 1 0.25 1.0 1e-1 D AO R\nc 1.0 0.3 1.2 0.8 S IY\n",
    "mfa's 0 and 1": "read\t1\tR IY D\nread\t0\tR EH D\nd'or\t0.5\tD AO R\nc\t1\tS IY\n",
}
