"""Draw the guides' pictures, light and dark in one SVG: python docs/_site/drawings.py [--train]

With `--train` the model of examples/dates.py is trained first, a minute or two, and writes where it
looks in one date to docs/figures/date.json; the other pictures are drawn from what is here.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES, WEIGHTS = ROOT / "docs" / "pictures", ROOT / "docs" / "figures" / "date.json"
DATE = "thursday, 23 january 2042"
STYLE = """text{fill:#1b2733;font:13px sans-serif}.small{font-size:11px;fill:#556070}
.mono{font-family:monospace}.box{fill:#eef2f7;stroke:#8593a3}.on{fill:#0a55d0}.warm{fill:#e27100}
path{stroke:#556070;fill:none;marker-end:url(#tip)}#tip path{fill:#556070;marker-end:none}
@media(prefers-color-scheme:dark){text{fill:#e6ebf1}.small{fill:#a9b4c0}
.box{fill:#22303f;stroke:#6b7a8b}.on{fill:#6ea8ff}.warm{fill:#ffa64d}path{stroke:#a9b4c0}
#tip path{fill:#a9b4c0}}"""
TIP = '<defs><marker id="tip" refX="6" refY="3" markerWidth="7" markerHeight="6" orient="auto">'
TIP += '<path d="M0 0L6 3L0 6z"/></marker></defs>'


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Return a picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>{TIP}{''.join(parts)}</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return (
        f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'
    )


def box(x: float, y: float, width: float, lines: Sequence[str], kind: str = "") -> str:
    """Return a box of lines, the first one its name."""
    rows = [text(x + 8, y + 18 + 16 * n, line, kind if n else "") for n, line in enumerate(lines)]
    height = 16 * len(lines) + 10
    frame = f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'
    return frame + "".join(rows)


def date() -> str:
    """Draw where a model looks in a date: a row for each character of the answer."""
    look = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    side, left, top = 18, 40, 30
    parts = [
        text(left + side * (n + 0.5), 20, c, "mono", "middle") for n, c in enumerate(look["source"])
    ]
    for row, (letter, weights) in enumerate(zip(look["target"], look["weights"], strict=True)):
        parts.append(text(20, top + side * row + 14, letter, "mono", "middle"))
        parts += [
            f'<rect class="on" x="{left + side * n}" y="{top + side * row}" width="{side - 1}" '
            f'height="{side - 1}" fill-opacity="{weight}"/>'
            for n, weight in enumerate(weights)
            if weight >= 0.02
        ]
    width, height = left + side * len(look["source"]) + 20, top + side * len(look["target"]) + 10
    return svg(width, height, f"{look['source']} is read as {look['target']}", parts)


def voice() -> str:
    """Draw how a lexicon comes into a voice's folder."""
    folder = ["voice/", "model.onnx", "tokens.txt", "lexicon.txt"]
    parts = [
        box(10, 20, 150, ["my.tsv", "words and phones"], "small"),
        box(10, 100, 150, ["text.txt", "what is to be said"], "small"),
        box(250, 54, 170, ["serving.client", "--format sherpa", "looks up, else asks"], "small"),
        box(520, 40, 150, folder, "mono"),
        '<path d="M160 42L244 72"/><path d="M160 120L244 98"/>',
        '<path d="M516 88C480 150 380 150 342 120"/><path d="M420 76C460 60 480 96 514 98"/>',
        text(430, 160, "--voice-tokens tokens.txt: the voice's own symbols", "small", "middle"),
    ]
    return svg(690, 175, "A model's lexicon in the folder of a voice", parts)


def versions() -> str:
    """Draw the life of a version: written aside, renamed, loaded, rolled back."""
    steps = [
        (["models/en-fr/", "1", "writing-4711"], "1 answers", "exported aside"),
        (["models/en-fr/", "1", "2"], "1 answers", "renamed when whole"),
        (["models/en-fr/", "1", "2"], "2 answers", "loaded, 1 unloaded"),
        (["models/en-fr/", "1", "bad-2"], "1 answers again", "rolled back by a rename"),
    ]
    parts = []
    for n, (lines, answers, what) in enumerate(steps):
        x = 10 + 185 * n
        parts += [box(x, 30, 140, lines, "mono"), text(x, 20, what, "small")]
        parts.append(text(x, 112, answers))
        if n:
            parts.append(f'<path d="M{x - 43} 60H{x - 5}"/>')
    return svg(720, 125, "The life of a version, from export to rollback", parts)


def first_minute() -> str:
    """Draw what the first minute of a training on a GPU is spent on: docs/guides/gpu.md."""
    parts, scale = [], 9.0
    rows = [("with the flags for a GPU", 19, 6.2), ("without", 62, 7.6)]
    for n, (name, first, step) in enumerate(rows):
        y, compiling = 18 + 62 * n, min(first, 60)
        steps = f"{(60 - compiling) / step * 1000:,.0f} steps" if first < 60 else "no second step"
        parts += [
            text(10, y, name),
            f'<rect class="warm" x="10" y="{y + 8}" width="{scale * compiling}" height="20"/>',
            f'<rect class="on" x="{10 + scale * compiling}" y="{y + 8}" '
            f'width="{scale * (60 - compiling)}" height="20"/>',
            text(10, y + 42, f"first step, compiled: {first} s", "small"),
            text(10 + 540, y + 42, f"{steps} of {step} ms", "small", "end"),
        ]
    return svg(560, 130, "The first minute of tatoeba-en-fr on one H200", parts)


def train() -> None:
    """Train the model of dates, and write where it looks."""
    sys.path.insert(0, str(ROOT / "examples"))
    import keras
    import numpy as np
    from dates import LONGEST, SYMBOLS, UNITS, make
    from writer import Writer

    from keras_attention import AdditiveAttention

    keras.utils.set_random_seed(1)
    writer = Writer(AdditiveAttention(UNITS), SYMBOLS, LONGEST, UNITS)
    right = writer.learn(*make(8200, np.random.default_rng(1)), epochs=4)
    source = writer.ids([DATE])
    target = "".join(writer.write(source)[0])
    before = writer.ids([target])[:, : len(target) - 1]
    said = np.pad(before, ((0, 0), (1, 0)), constant_values=1)
    parts = keras.Model(writer.model.inputs, writer.decoder.input[:2])([source, said])
    looked = writer.decoder(*parts, memory_mask=source != 0, return_attention_scores=True)
    weights = np.asarray(looked[-1])[0, :, : len(DATE)].astype("float64").round(3).tolist()
    about = {"right": round(float(right), 3), "source": DATE, "target": target, "weights": weights}
    WEIGHTS.write_text(json.dumps(about, ensure_ascii=False) + "\n", encoding="utf-8")


DRAWN = {"date": date, "voice": voice, "versions": versions, "first-minute": first_minute}

if __name__ == "__main__":
    if "--train" in sys.argv:
        train()
    for name, draw in DRAWN.items():
        (PICTURES / f"{name}.svg").write_text(draw(), encoding="utf-8")
