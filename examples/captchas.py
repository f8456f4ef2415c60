"""CAPTCHAs of four digits to text. Needs `pip install captcha`.

A convolution makes a grid of the image; the decoder looks at one column of it for each digit.
"""

import keras
import numpy as np
from captcha.image import ImageCaptcha

from keras_attention import AdditiveAttention, AttentionRNN, SinePositionEncoding, greedy_search

HEIGHT, WIDTH, LENGTH, UNITS, START = 32, 96, 4, 96, 10  # ids 0 to 9 are the digits


def make(count, rng):
    """Return images (count, HEIGHT, WIDTH, 1) and their digits (count, LENGTH)."""
    drawing = ImageCaptcha(width=WIDTH, height=HEIGHT, font_sizes=(24, 28))
    digits = rng.integers(0, 10, (count, LENGTH))
    images = [drawing.generate_image("".join(map(str, row))).convert("L") for row in digits]
    return np.stack([np.asarray(image, "float32") / 255 for image in images])[..., None], digits


def build():
    """Return the model, and a function that reads images."""
    grid = image = keras.Input((HEIGHT, WIDTH, 1))
    for filters, pool in ((24, 2), (48, 2), (96, (2, 1))):
        grid = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(grid)
        grid = keras.layers.ReLU()(keras.layers.BatchNormalization()(grid))
        grid = keras.layers.MaxPooling2D(pool)(grid)
    grid = grid + SinePositionEncoding(100)(grid)  # (B, 4, 24, 96)
    embed, output = keras.layers.Embedding(11, 32), keras.layers.Dense(11)
    attention = AdditiveAttention(UNITS)
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), attention, units=UNITS)
    said = keras.Input((None,), dtype="int32")
    model = keras.Model([image, said], output(decoder(embed(said), grid)))
    encode = keras.Model(image, grid)

    def read(images):
        memory = decoder.prepare(encode(images))

        def step(tokens, state):
            vector, weights, state = decoder.step(embed(tokens), memory, state)
            return keras.ops.log_softmax(output(vector)), weights, state

        settings = {"batch_size": len(images), "start_id": START, "end_id": 10}
        state = decoder.initial_state(memory)
        return np.array(greedy_search(step, state, max_length=LENGTH, **settings).ids)

    return model, read


def main(count=6000, epochs=6):
    """Train, read 200 new images, and return the share that is right."""
    keras.utils.set_random_seed(1)
    images, digits = make(count + 200, np.random.default_rng(1))
    said = np.pad(digits[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    model, read = build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss)
    train = [images[:count], said[:count]]
    model.fit(train, digits[:count], batch_size=64, epochs=epochs, verbose=2)
    found = read(images[count:])
    for aim, row in list(zip(digits[count:], found, strict=True))[:4]:
        print("".join(map(str, aim)), "".join(map(str, row)))
    right = np.mean((found == digits[count:]).all(axis=1))
    print(f"{right:.0%} of new images are read without a mistake")
    return right


if __name__ == "__main__":
    main()
