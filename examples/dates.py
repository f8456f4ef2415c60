"""Dates as people write them, to ISO 8601: "thursday, 23 january 2042" to "2042-01-23".

The decoder attends to the year first, then to the month, then to the day, wherever they are.
"""

import datetime

import keras
import numpy as np
from writer import END, PADDING, START, Writer  # beside this file

from keras_attention import AdditiveAttention

FORMATS = ("%A, %d %B %Y", "%d %b %Y", "%B %d, %Y", "%d.%m.%Y", "%m/%d/%Y", "the %dth of %B %Y")
SYMBOLS = [PADDING, START, END, *"abcdefghijklmnopqrstuvwxyz0123456789 ,./-"]
LONGEST, UNITS = 30, 96


def make(count, rng):
    """Return dates as they are written, and in ISO 8601."""
    dates = [datetime.date.fromordinal(int(day)) for day in rng.integers(712_000, 754_000, count)]
    formats = rng.choice(FORMATS, count)
    written = [date.strftime(one).lower() for date, one in zip(dates, formats, strict=True)]
    return written, [date.isoformat() for date in dates]


def main(count=8000, epochs=4):
    """Train on `count` pairs, write 200 new ones, and return the share that is right."""
    keras.utils.set_random_seed(1)
    pairs = make(count + 200, np.random.default_rng(1))
    writer = Writer(AdditiveAttention(UNITS), SYMBOLS, LONGEST, UNITS)
    return writer.learn(*pairs, epochs)


if __name__ == "__main__":
    main()
