"""Pig Latin: "string" to "ingstray", "apple" to "appleway". The words are drawn, not English.

The first letters are written last: the weights of a word that begins with consonants wrap around.
"""

import keras
import numpy as np
from writer import END, PADDING, START, Writer  # beside this file

from keras_attention import MultiplicativeAttention

ONSETS = "b br c ch cl d f fl g gr h k l m n p pl r s sh st str t th tr v w".split()
SYMBOLS = [PADDING, START, END, *"abcdefghijklmnopqrstuvwxyz"]
LONGEST, UNITS = 20, 96


def make(count, rng):
    """Return words that could be, and the same in Pig Latin."""
    heads = [str(rng.choice(ONSETS)) * bool(rng.random() < 0.8) for _ in range(count)]
    rests = [
        "".join(rng.choice(list("aeiou")) + rng.choice(ONSETS) for _ in range(rng.integers(1, 4)))
        for _ in range(count)
    ]
    pairs = list(zip(heads, rests, strict=True))
    return [head + rest for head, rest in pairs], [f"{rest}{head or 'w'}ay" for head, rest in pairs]


def main(count=8000, epochs=6):
    """Train on `count` pairs, write 200 new ones, and return the share that is right."""
    keras.utils.set_random_seed(1)
    pairs = make(count + 200, np.random.default_rng(1))
    writer = Writer(MultiplicativeAttention("general"), SYMBOLS, LONGEST, UNITS)
    return writer.learn(*pairs, epochs)


if __name__ == "__main__":
    main()
