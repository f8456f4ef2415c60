"""Sums in words: "thirty one plus twelve" to "forty three". The decoder has to carry."""

import keras
import numpy as np

from keras_attention import AdditiveAttention, AttentionRNN, greedy_search

ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen""".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
SYMBOLS = ["", "<", ">", "plus", *ONES, *TENS]
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


def ids(texts, length):
    """Return texts as ids (B, length), padded with 0."""
    rows = [[SYMBOLS.index(one) for one in text] for text in texts]
    return np.array([row + [0] * (length - len(row)) for row in rows])


def build():
    """Return the model, and a function that writes the target of each source (B, S)."""
    embed, output = keras.layers.Embedding(len(SYMBOLS), 32), keras.layers.Dense(len(SYMBOLS))
    encoder = keras.layers.Bidirectional(keras.layers.GRU(UNITS // 2, return_sequences=True))
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), AdditiveAttention(UNITS), units=UNITS)
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


def main(count=8000, epochs=24):
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
        print(f"{' '.join(text):45} {' '.join(made)}")
    right = np.mean([made == list(aim) for made, aim in zip(found, targets[count:], strict=True)])
    print(f"{right:.0%} of new sums are right")
    return right


if __name__ == "__main__":
    main()
