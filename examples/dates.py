"""Dates as people write them, to ISO 8601: "thursday, 23 january 2042" to "2042-01-23".

The decoder attends to the year first, then to the month, then to the day, wherever they are.
"""

import datetime

import keras
import numpy as np

from keras_attention import AdditiveAttention, AttentionRNN, greedy_search

FORMATS = ("%A, %d %B %Y", "%d %b %Y", "%B %d, %Y", "%d.%m.%Y", "%m/%d/%Y", "the %dth of %B %Y")
SYMBOLS = ["", "<", ">", *"abcdefghijklmnopqrstuvwxyz0123456789 ,./-"]
LONGEST, UNITS = 30, 96


def make(count, rng):
    """Return dates as they are written, and in ISO 8601."""
    dates = [datetime.date.fromordinal(int(day)) for day in rng.integers(712_000, 754_000, count)]
    formats = rng.choice(FORMATS, count)
    written = [date.strftime(one).lower() for date, one in zip(dates, formats, strict=True)]
    return written, [date.isoformat() for date in dates]


def ids(texts, length):
    """Return texts as ids (B, length), padded with 0."""
    rows = [[SYMBOLS.index(one) for one in text] for text in texts]
    return np.array([row + [0] * (length - len(row)) for row in rows])


def build():
    """Return the model, and a function that writes the target of each source (B, S)."""
    embed, output = keras.layers.Embedding(len(SYMBOLS), 32), keras.layers.Dense(len(SYMBOLS))
    encoder = keras.layers.Bidirectional(keras.layers.GRU(UNITS // 2, return_sequences=True))
    attention = AdditiveAttention(UNITS)
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), attention, units=UNITS)
    read, said = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    mask = keras.ops.not_equal(read, 0)
    memory = encoder(embed(read), mask=mask)
    model = keras.Model([read, said], output(decoder(embed(said), memory, memory_mask=mask)))
    encode = keras.Model(read, memory)

    def write(source):
        memory = decoder.prepare(encode(source), mask=source != 0)

        def step(tokens, state):
            vector, weights, state = decoder.step(embed(tokens), memory, state)
            return keras.ops.log_softmax(output(vector)), weights, state

        settings = {"batch_size": len(source), "start_id": 1, "end_id": 2, "max_length": LONGEST}
        found = greedy_search(step, decoder.initial_state(memory), **settings)
        return [[SYMBOLS[n] for n in row if n > 2] for row in np.array(found.ids)]

    return model, write


def main(count=8000, epochs=4):
    """Train on `count` pairs, write 200 new ones, and return the share that is right."""
    keras.utils.set_random_seed(1)
    sources, targets = make(count + 200, np.random.default_rng(1))
    source, target = ids(sources, LONGEST), ids([[*text, ">"] for text in targets], LONGEST)
    said = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    model, write = build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(5e-3), loss)
    pairs = [source[:count], said[:count]], target[:count]
    model.fit(*pairs, batch_size=64, epochs=epochs, verbose=2)
    found = write(source[count:])
    for text, made in list(zip(sources[count:], found, strict=True))[:4]:
        print(f"{text:30} {''.join(made)}")
    right = np.mean([made == list(aim) for made, aim in zip(found, targets[count:], strict=True)])
    print(f"{right:.0%} of new dates are right")
    return right


if __name__ == "__main__":
    main()
