"""Token ids that stand for no text; every vocabulary begins with them."""

PAD_ID, UNK_ID, START_ID, END_ID = 0, 1, 2, 3
