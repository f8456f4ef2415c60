"""Sounds of spoken digits to letters, as "Listen, Attend and Spell" reads speech.

A synthesiser of sines speaks. Needs `pip install matplotlib`, for the picture of what is heard.
"""

import keras
import numpy as np

from keras_attention import AttentionRNN, LocationSensitiveAttention, greedy_search, plot_attention

NAMES = "zero one two three four five six seven eight nine".split()
PHONES = "z-i-r-o w-a-n t-u th-r-i f-o-r f-a-i-v s-i-k-s s-e-v-e-n e-i-t n-a-i-n".split()
TONES = dict(zip("z i r o w a n t u th f v s k e".split(), range(15), strict=True))
LETTERS = ["", "<", ">", " ", *sorted(set("".join(NAMES)))]
RATE, HOP, WINDOW, FRAMES, BANDS, LONGEST, UNITS = 8000, 80, 160, 128, 40, 22, 96


def speak(digits, rng):
    """Return frames (T, BANDS): the loudness of each frequency while someone says the digits."""
    voice, waves = rng.uniform(0.92, 1.08), []  # a child is higher than a man
    for phone in "-".join(PHONES[digit] for digit in digits).split("-"):
        place, time = TONES[phone], np.arange(int(rng.uniform(0.05, 0.1) * RATE)) / RATE
        low, high = 300 + 150 * (place % 4), 1100 + 400 * (place // 4 + place % 3)
        waves += [sum(np.sin(2 * np.pi * voice * tone * time) for tone in (low, high))]
    wave = np.concatenate(waves)
    wave = wave + rng.normal(0, 0.2, wave.shape)
    starts = np.arange(0, len(wave) - WINDOW, HOP)[:FRAMES]
    pieces = wave[starts[:, None] + np.arange(WINDOW)] * np.hanning(WINDOW)
    return np.log1p(np.abs(np.fft.rfft(pieces)))[:, 1:].reshape(-1, BANDS, 2).mean(-1)


def make(count, rng):
    """Return frames (count, FRAMES, BANDS), 0 after the end, and letters (count, LONGEST)."""
    sounds, letters = np.zeros((count, FRAMES, BANDS), "float32"), np.zeros((count, LONGEST), int)
    for sound, row in zip(sounds, letters, strict=True):
        digits = rng.integers(0, 10, rng.integers(1, 4))
        heard = speak(digits, rng)
        sound[: len(heard)] = heard
        text = [*" ".join(NAMES[digit] for digit in digits), ">"]
        row[: len(text)] = [LETTERS.index(one) for one in text]
    return sounds, letters


def build():
    """Return the model, and a function that returns the letters of sounds and where it listened."""
    states = sound = keras.Input((FRAMES, BANDS))
    mask = keras.ops.any(sound != 0, axis=-1)[:, ::4]
    for _ in range(2):  # the pyramid: each layer joins two frames to one
        states = keras.layers.Reshape((-1, 2 * states.shape[-1]))(states)
        layer = keras.layers.GRU(UNITS // 2, return_sequences=True)
        states = keras.layers.Bidirectional(layer)(states)
    attention = LocationSensitiveAttention(UNITS, filters=8, kernel_size=5)
    cell, embed = keras.layers.LSTMCell(UNITS), keras.layers.Embedding(len(LETTERS), 16)
    decoder = AttentionRNN(cell, attention, order="luong", input_feeding=True)
    output, said = keras.layers.Dense(len(LETTERS)), keras.Input((None,), dtype="int32")
    model = keras.Model([sound, said], output(decoder(embed(said), states, memory_mask=mask)))
    encode = keras.Model(sound, [states, mask])

    def spell(sounds):
        states, mask = encode(sounds)
        memory = decoder.prepare(states, mask=mask)

        def step(tokens, state):
            vector, weights, state = decoder.step(embed(tokens), memory, state)
            return keras.ops.log_softmax(output(vector)), weights, state

        settings = {"batch_size": len(sounds), "start_id": 1, "end_id": 2, "max_length": LONGEST}
        state = decoder.initial_state(memory)
        found = greedy_search(step, state, return_attention_weights=True, **settings)
        texts = ["".join(LETTERS[n] for n in row if n > 2) for row in np.array(found.ids)]
        return texts, np.array(found.attention_weights)

    return model, spell


def main(count=3000, epochs=10):
    """Train, spell 200 new sounds, draw one, and return the share that is right."""
    keras.utils.set_random_seed(1)
    sounds, letters = make(count + 200, np.random.default_rng(1))
    said = np.pad(letters[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    model, spell = build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(5e-3, clipnorm=1.0), loss)
    model.fit(
        [sounds[:count], said[:count]], letters[:count], batch_size=32, epochs=epochs, verbose=2
    )
    found, weights = spell(sounds[count:])
    aims = ["".join(LETTERS[n] for n in row if n > 2) for row in letters[count:]]
    for aim, text in list(zip(aims, found, strict=True))[:6]:
        print(f"{aim:20} {text}")
    right = np.mean([aim == text for aim, text in zip(aims, found, strict=True)])
    print(f"{right:.0%} of new sounds are spelled without a mistake")
    heard = sounds[count:, ::4].any(axis=-1).sum(axis=-1)  # memory positions of each sound
    row = heard.argmax()
    text = found[row] or " "  # an untrained model may write nothing
    seconds = np.arange(heard[row]) * 4 * HOP / RATE
    shown = weights[row][: len(text), : heard[row]]
    plot_attention(seconds, [*text], shown, "digits_heard.png", title="seconds of sound")
    return right


if __name__ == "__main__":
    main()
