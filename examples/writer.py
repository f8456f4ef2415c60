"""The model of four examples: it reads a sequence of symbols, and writes another, with attention.

`dates.py`, `pig_latin.py`, `pronunciation.py` and `sums_in_words.py` train it on their pairs.
"""

import keras
import numpy as np

from keras_attention import AttentionRNN, greedy_search

PADDING, START, END = "", "<", ">"  # the first symbols, with the ids 0, 1 and 2


class Writer:
    """An encoder-decoder of GRUs.

    Args:
        attention: an attention layer.
        symbols: PADDING, START, END, and all symbols of sources and targets.
        longest: the longest source or target, with its END.
        units: width of the states.
    """

    def __init__(self, attention, symbols, longest, units):
        self.symbols, self.longest = symbols, longest
        self.embed = keras.layers.Embedding(len(symbols), 32)
        self.output = keras.layers.Dense(len(symbols))
        encoder = keras.layers.Bidirectional(keras.layers.GRU(units // 2, return_sequences=True))
        self.decoder = AttentionRNN(keras.layers.GRUCell(units), attention, units=units)
        read, said = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
        mask = keras.ops.not_equal(read, 0)
        memory = encoder(self.embed(read), mask=mask)  # (B, S, units)
        states = self.decoder(self.embed(said), memory, memory_mask=mask)  # (B, T, units)
        self.encode = keras.Model(read, memory)
        self.model = keras.Model([read, said], self.output(states))  # logits (B, T, symbols)

    def ids(self, texts):
        """Return texts as ids (B, longest), padded with 0."""
        rows = [[self.symbols.index(one) for one in text] for text in texts]
        return np.array([row + [0] * (self.longest - len(row)) for row in rows])

    def write(self, source):
        """Return the target of each source (B, S), as a list of symbols."""
        memory = self.decoder.prepare(self.encode(source), mask=source != 0)

        def step(tokens, state):
            vector, weights, state = self.decoder.step(self.embed(tokens), memory, state)
            return keras.ops.log_softmax(self.output(vector)), weights, state

        settings = {"batch_size": len(source), "start_id": 1, "end_id": 2}
        state = self.decoder.initial_state(memory)
        found = greedy_search(step, state, max_length=self.longest, **settings)
        return [[self.symbols[n] for n in row if n > 2] for row in np.array(found.ids)]

    def learn(self, sources, targets, epochs, learning_rate=5e-3):
        """Train on all pairs but the last 200, write these, and return the share that is right."""
        source, target = self.ids(sources), self.ids([[*text, END] for text in targets])
        said = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=1)  # START, then the target
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        self.model.compile(keras.optimizers.Adam(learning_rate), loss)
        pairs = [source[:-200], said[:-200]], target[:-200]
        self.model.fit(*pairs, batch_size=64, epochs=epochs, verbose=2)
        found = self.write(source[-200:])
        for text, made in list(zip(sources[-200:], found, strict=True))[:4]:
            print(f"{_line(text):45} {_line(made)}")
        right = [made == list(aim) for made, aim in zip(found, targets[-200:], strict=True)]
        print(f"{np.mean(right):.0%} of new ones are right")
        return np.mean(right)


def _line(symbols):
    """Return letters as a word, and words with spaces between them."""
    return (" " if any(len(one) > 1 for one in symbols) else "").join(symbols)
