"""A forecast that looks back: the next 12 values of a series with a period of its own.

The period is drawn for each series, so that the decoder has to find it: each step looks at what
stood one period before. Naive is the forecast that repeats the last value.
"""

import keras
import numpy as np

from keras_attention import AdditiveAttention, AttentionRNN, SinePositionEncoding

PAST, NEXT, UNITS = 48, 12, 64


def make(count, rng):
    """Return series (count, PAST + NEXT, 1) of periods from 8 to 24, with noise."""
    period = rng.uniform(8, 24, (count, 1))
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    time = np.arange(PAST + NEXT)
    wave = np.sin(2 * np.pi * time / period + phase)
    spikes = 1.5 * (wave > 0.9)
    return (wave + spikes + 0.1 * rng.normal(size=wave.shape))[..., None].astype("float32")


def build():
    """Return the model, and a function that forecasts from the past (B, PAST, 1)."""
    past, last = keras.Input((PAST, 1)), keras.Input((None, 1))
    encoder = keras.layers.GRU(UNITS, return_sequences=True, return_state=True)
    memory, state = encoder(past)
    memory = memory + SinePositionEncoding(100)(memory)
    attention = AdditiveAttention(UNITS)
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), attention, units=UNITS, input_feeding=True)
    output = keras.layers.Dense(1)
    model = keras.Model([past, last], output(decoder(last, memory, initial_state=[state])))
    encode = keras.Model(past, [memory, state])

    def forecast(series):
        memory, state = encode(series)
        memory = decoder.prepare(memory)
        state, value, found = decoder.initial_state(memory, [state]), series[:, -1], []
        for _ in range(NEXT):
            vector, _, state = decoder.step(value, memory, state)
            value = output(vector)
            found.append(keras.ops.convert_to_numpy(value))
        return np.stack(found, axis=1)

    return model, forecast


def main(count=4000, epochs=10):
    """Train, forecast 200 new series, and return the error as a share of the naive one's."""
    keras.utils.set_random_seed(1)
    series = make(count + 200, np.random.default_rng(1))
    past, shown, target = series[:, :PAST], series[:, PAST - 1 : -1], series[:, PAST:]
    model, forecast = build()
    model.compile(keras.optimizers.Adam(3e-3), "mse")
    train = [past[:count], shown[:count]]
    model.fit(train, target[:count], batch_size=64, epochs=epochs, verbose=2)
    error = np.mean((forecast(past[count:]) - target[count:]) ** 2)
    naive = np.mean((past[count:, -1:] - target[count:]) ** 2)
    print(f"mean squared error {error:.3f}, of the last value repeated {naive:.3f}")
    return error / naive


if __name__ == "__main__":
    main()
