"""Texts that a translator is asked: of all lengths, and odd ones."""

TEXTS = (
    b"She is eating a green apple.",
    "Il n'aime pas les pommes : été.".encode(),
    "他不喜欢苹果。".encode(),
    *(b"a text of " + b"some more " * count + b"words" for count in range(14)),
)
HARD_TEXTS = (
    b"",
    b" ".join([b"word"] * 2000),
    b"\xff\xfe invalid \x80 UTF-8",
    b"NUL \x00 inside",
    b"a short text",
)
