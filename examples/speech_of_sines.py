"""Phones to the spectrogram of their sounds, as Tacotron 2 writes speech.

Each phone is some frames of two sines. The decoder stays on a phone while it lasts, then goes on to
the next. Needs `pip install matplotlib`, for the picture of it.
"""

import keras
import numpy as np

from keras_attention import AttentionRNN, LocationSensitiveAttention, plot_attention

PHONES = ["", *"aeioumnlrszftkp"]
BANDS, LONGEST, FRAMES, UNITS = 24, 14, 64, 96


def make(count, rng):
    """Return phones (count, LONGEST) and frames (count, FRAMES, BANDS), 0 where nothing is said."""
    phones = np.zeros((count, LONGEST), "int32")
    frames, bands = np.zeros((count, FRAMES, BANDS), "float32"), np.arange(BANDS)
    for row, sound in zip(phones, frames, strict=True):
        length = rng.integers(6, LONGEST + 1)
        row[:length] = rng.integers(1, len(PHONES), length)
        lasts = np.where(row[:length] < 6, 5, 3)  # vowels are longer
        for frame, phone in zip(sound, np.repeat(row[:length], lasts), strict=False):
            for tone in (phone % 4 * 3 + 1, 12 + phone // 4 * 3):
                frame += np.exp(-((bands - tone) ** 2) / 2)
    return phones, frames


def build():
    """Return the model, and a function from phones to frames and the weights of each frame."""
    read, before = keras.Input((None,), dtype="int32"), keras.Input((None, BANDS))
    mask = keras.ops.not_equal(read, 0)
    vectors = keras.layers.Embedding(len(PHONES), 32)(read)
    encoder = keras.layers.Bidirectional(keras.layers.GRU(UNITS // 2, return_sequences=True))
    memory = encoder(vectors, mask=mask)
    # The prenet: few units and dropout keep the decoder from copying the frame before.
    narrow, drop = keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.5)
    attention = LocationSensitiveAttention(32, filters=8, kernel_size=5, cumulative=True)
    cell, output = keras.layers.LSTMCell(UNITS), keras.layers.Dense(BANDS)
    decoder = AttentionRNN(cell, attention, order="luong", input_feeding=True)
    states = decoder(drop(narrow(before)), memory, memory_mask=mask)
    model = keras.Model([read, before], output(states))
    encode = keras.Model(read, memory)

    def speak(phones):
        memory = decoder.prepare(encode(phones), mask=phones != 0)
        state, frame = decoder.initial_state(memory), np.zeros((len(phones), BANDS), "float32")
        frames, weights = [], []
        for _ in range(FRAMES):
            vector, looked, state = decoder.step(narrow(frame), memory, state)
            frame = output(vector)
            frames.append(keras.ops.convert_to_numpy(frame))
            weights.append(keras.ops.convert_to_numpy(looked))
        return np.stack(frames, axis=1), np.stack(weights, axis=1)

    return model, speak


def main(count=2000, epochs=9):
    """Train, speak 50 new lines, draw one, and return the error, divided by that of silence."""
    keras.utils.set_random_seed(1)
    phones, frames = make(count + 50, np.random.default_rng(1))
    before = np.pad(frames[:, :-1], ((0, 0), (1, 0), (0, 0)))
    model, speak = build()
    model.compile(keras.optimizers.Adam(3e-3, clipnorm=1.0), "mse")
    model.fit(
        [phones[:count], before[:count]], frames[:count], batch_size=32, epochs=epochs, verbose=2
    )
    found, weights = speak(phones[count:])
    error = np.square(found - frames[count:]).mean() / np.square(frames[count:]).mean()
    print(f"the error of new sounds is {error:.1%} of their power")
    length, lasts = (phones[count] != 0).sum(), frames[count].any(axis=-1).sum()
    names = [PHONES[phone] for phone in phones[count][:length]]
    times = [f"{10 * frame} ms" for frame in range(0, lasts, 3)]  # every third frame is drawn
    plot_attention(names, times, weights[0][:lasts:3, :length], "speech_of_sines.png")
    return error


if __name__ == "__main__":
    main()
