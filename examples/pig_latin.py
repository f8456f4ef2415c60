"""Pig Latin: "string" to "ingstray", "apple" to "appleway". The words are drawn, not English.

The first letters are written last: the weights of a word that begins with consonants wrap around.
"""

import keras
import numpy as np

from keras_attention import AttentionRNN, MultiplicativeAttention, greedy_search

ONSETS = "b br c ch cl d f fl g gr h k l m n p pl r s sh st str t th tr v w".split()
SYMBOLS = ["", "<", ">", *"abcdefghijklmnopqrstuvwxyz"]
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


def ids(texts, length):
    """Return texts as ids (B, length), padded with 0."""
    rows = [[SYMBOLS.index(one) for one in text] for text in texts]
    return np.array([row + [0] * (length - len(row)) for row in rows])


def build():
    """Return the model, and a function that writes the target of each source (B, S)."""
    embed, output = keras.layers.Embedding(len(SYMBOLS), 32), keras.layers.Dense(len(SYMBOLS))
    encoder = keras.layers.Bidirectional(keras.layers.GRU(UNITS // 2, return_sequences=True))
    attention = MultiplicativeAttention("general")
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


def main(count=8000, epochs=6):
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
        print(f"{text:20} {''.join(made)}")
    right = np.mean([made == list(aim) for made, aim in zip(found, targets[count:], strict=True)])
    print(f"{right:.0%} of new words are right")
    return right


if __name__ == "__main__":
    main()
