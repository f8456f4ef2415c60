"""Sums in words: "thirty one plus twelve" to "forty three". The decoder has to carry."""

import keras
import numpy as np
from writer import END, PADDING, START, Writer  # beside this file

from keras_attention import AdditiveAttention

ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen""".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
SYMBOLS = [PADDING, START, END, "plus", *ONES, *TENS]
LONGEST, UNITS = 6, 96


def words(number):
    """Return a number below 100 as words."""
    tens, ones = divmod(number, 10)
    return [ONES[number]] if number < 20 else [TENS[tens - 2], *([ONES[ones]] if ones else [])]


def make(count, rng):
    """Return sums below 100 as words, and what they come to."""
    numbers = np.sort(rng.integers(0, 100, (count, 2)))
    pairs = [(int(a), int(both - a)) for a, both in numbers]
    return [[*words(a), "plus", *words(b)] for a, b in pairs], [words(a + b) for a, b in pairs]


def main(count=8000, epochs=24):
    """Train on `count` pairs, write 200 new ones, and return the share that is right."""
    keras.utils.set_random_seed(1)
    pairs = make(count + 200, np.random.default_rng(1))
    writer = Writer(AdditiveAttention(UNITS), SYMBOLS, LONGEST, UNITS)
    return writer.learn(*pairs, epochs)


if __name__ == "__main__":
    main()
