"""Print the page of all mechanisms: python docs/_site/mechanisms.py > docs/mechanisms.md."""

from pathlib import Path

from keras_attention import distributions, mechanisms

DRAWN = Path(__file__).parents[1] / "pictures" / "mechanisms"
PAGE = """# Attention mechanisms

Each has a name. `keras_attention.mechanisms.make(NAME, units, …)` makes the layer, and
`python -m training.train --preset … --set attention=NAME` trains with it. Further settings are
`attention_units`, `attention_heads`, `distribution` and `attention_options`. The last one holds
arguments of the mechanism's own, for example `--set attention_options=half_width=5`. With `none`
the decoder sees the encoder's last states alone.

| `attention=` | class | scores, or what makes the weights |
|---|---|---|
{rows}

`distribution=` makes weights out of scores: {distributions}. The monotonic mechanisms have none.
Their `mode` is `parallel` or `hard`. A `hard` one is soft in training, and attends to a single
position when it decodes.

## One place for each token

With `attention=hard_monotonic` a token is said of one place of the source, not of an average, and
no place comes before the last one (Wu and Cotterell 2019, arXiv 1905.06319). Training sums over all
such ways, exactly:

- `p(a_t = j | a_{{t-1}} = i)` is the softmax over `j ≥ i` of `vᵀ tanh(W s_t + U h_j) + d_{{j-i}}`;
- `p(y_t | y_{{<t}}) = Σ_j p(a_t = j | y_{{<t}}) softmax(O tanh(C h_j + S s_t))`.

It suits strings whose letters are said in their order, with little to learn from: spelling to
sound, transliteration, inflection; and lines of text in images, whose columns are read. It takes
`order=luong`, a text or an image whose convolutions leave one row, and small vocabularies: a step
holds `S · V` numbers. The weights that are shown are those before the token is known. The layer is
`training.model.aligned.AlignedDecoder`.

## The same sentence through each

A small translator with each mechanism, trained alike on the built-in phrasebook for five epochs.
Source words are across, French words down; darker is more. `python docs/_site/figures.py` makes the
pictures.

{pictures}

## Beyond the mechanism

Three settings go further:

- `coverage_loss=1` adds the loss for looking twice at the same place (See et al. 2017, arXiv
  1704.04368).
- `copy=true` makes the decoder a pointer-generator (the same paper). It copies words that no
  vocabulary holds, such as names and numbers, from the place it looks at. It takes tokenizers of
  whole words. `copy_hidden=0.5` hides names and numbers that both sides have in half of the pairs
  that are trained on: a corpus whose names are in the vocabulary teaches no copying otherwise.
- `--replace-unknown` of `training.translate`, `training.evaluate` and `serving.export` needs no
  such training. It says the source word that the decoder looked at in place of an unknown one.

## A new one

In one's own code a mechanism is a subclass of `keras_attention.Attention`. CONTRIBUTING.md says
which files a mechanism of this library has, and which programs write pages such as this one.
"""


def class_of(name: str) -> str:
    """Return the class that a mechanism is made of, with the arguments that tell it from others."""
    layer = mechanisms.make(name, units=4)
    settings = {key: layer.get_config().get(key) for key in ("score", "normalize", "predictive")}
    arguments = (f"{key}={value!r}" for key, value in settings.items() if value)
    return f"`{type(layer).__name__}({', '.join(arguments)})`".replace("()", "")


def page() -> str:
    """Return the page, Markdown."""
    rows = "\n".join(
        f"| `{name}` | {class_of(name)} | {mechanism.about} |"
        for name, mechanism in mechanisms.BY_NAME.items()
    )
    names = ", ".join(f"`{name}`" for name in distributions.BY_NAME)
    pictures = "\n".join(
        f"![`{name}`](pictures/mechanisms/{name}.svg)"
        for name in mechanisms.BY_NAME
        if (DRAWN / f"{name}.svg").exists()
    )
    return PAGE.format(rows=rows, distributions=names, pictures=pictures)


if __name__ == "__main__":
    print(page(), end="")
