"""Make the data of the live figures and the pictures of the mechanisms: small models, trained here.

    python docs/_site/figures.py --runs runs/figures

Models that the folder has already are used as they are. All of it takes about 40 minutes of one
core. docs/figures gets JSON, docs/pictures/mechanisms an SVG for each mechanism.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from keras_attention.mechanisms import BY_NAME
from training.decode.labels import make_predictor
from training.decode.texts import make_attender, make_translator
from training.runs.run import Run, load_run

DOCS = Path(__file__).parents[1]
FIGURES, PICTURES = DOCS / "figures", DOCS / "pictures" / "mechanisms"
JOINED = ("concat_pairs=0.5", "max_source_length=60", "max_target_length=60")
SENTENCE = "She is eating a green apple.", "Elle mange une pomme verte."
MORE = [
    SENTENCE,
    ("The good restaurant isn't near the lake.", "Le bon restaurant n'est pas près du lac."),
    ("Their son sold the planes last week.", "Leur fils a vendu les avions la semaine dernière."),
    ("Arthur's shoes aren't dirty.", "Les chaussures d'Arthur ne sont pas sales."),
]
LONG = [  # a text of one to six sentences of the test split
    ("I will see a mountain.", "Je verrai une montagne."),
    ("Arthur's shoes aren't dirty.", "Les chaussures d'Arthur ne sont pas sales."),
    ("Is their sister rich?", "Est-ce que leur sœur est riche ?"),
    ("She is waiting for these intelligent teachers.", "Elle attend ces professeurs intelligents."),
    ("Their father isn't brave.", "Leur père n'est pas courageux."),
    ("We aren't singing in the street.", "Nous ne chantons pas dans la rue."),
]
IMAGES, PEOPLE = 6, 4


def settings() -> dict[str, list[str]]:
    """Return the arguments of `training.train` for each run."""
    phrasebook = {name: ["phrasebook-en-fr", f"attention={name}", "epochs=5"] for name in BY_NAME}
    joined = {
        f"joined-{name}": ["phrasebook-en-fr", f"attention={name}", *JOINED]
        for name in ("additive", "none", "general")
    }
    images = {"digits": ["digits", "epochs=6"], "pbcseq": ["pbcseq"]}
    return joined | images | phrasebook


def trained(folder: Path, name: str) -> Run:
    """Return a run, which is trained if it is missing."""
    preset, *keys = settings()[name]
    if not (folder / name).exists():
        words = [word for key in keys for word in ("--set", key)]
        command = ["-m", "training.train", "--preset", preset, *words]
        subprocess.run([sys.executable, *command, "--output", str(folder / name)], check=True)
    return load_run(folder / name)


def rounded(values: Any) -> list:
    """Return nested lists of numbers with three digits."""
    return np.round(np.asarray(values, float), 3).tolist()


def plain(tokens: Sequence[str]) -> list[str]:
    """Return tokens without the mark of a new word."""
    return [token.lstrip("▁") for token in tokens]


def write(name: str, made: Any) -> None:
    """Write one file of docs/figures."""
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    (FIGURES / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def alignments(run: Run, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return words and weights of pairs of sentences."""
    found = make_attender([run])(*([pair[side] for pair in pairs] for side in (0, 1)))
    return [
        {
            "source": plain(a.source_tokens),
            "target": plain(a.target_tokens),
            "weights": rounded(a.weights),
        }
        for a in found
    ]


def picture(name: str, made: dict[str, Any]) -> str:
    """Return the SVG of a matrix of weights: the source across, the target down."""
    cell, left, top = 26, 74, 62
    source, target = made["source"], made["target"]
    width, height = left + cell * len(source) + 30, top + cell * len(target) + 18
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{name}: {escape(SENTENCE[0])}</title>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
        f'<text x="6" y="{height - 6}" font-size="9" fill="#556070">{name}</text>'
    ]
    for column, word in enumerate(source):
        x = left + cell * (column + 0.5)
        parts.append(f'<text transform="translate({x} {top - 6})rotate(-45)">{escape(word)}</text>')
    for row, word in enumerate(target):
        y = top + cell * row
        parts.append(f'<text x="{left - 6}" y="{y + 17}" text-anchor="end">{escape(word)}</text>')
        for column, weight in enumerate(made["weights"][row]):
            parts.append(
                f'<rect x="{left + cell * column}" y="{y}" width="{cell}" height="{cell}" '
                f'fill="#12355b" fill-opacity="{weight:.2f}" stroke="#c3c9d2"/>'
            )
    return "".join([*parts, "</svg>\n"])


def mechanisms(folder: Path) -> None:
    """Draw the same sentence through each mechanism."""
    for name in BY_NAME:
        (made,) = alignments(trained(folder, name), [SENTENCE])
        (PICTURES / f"{name}.svg").write_text(picture(name, made), encoding="utf-8")


def sentences(folder: Path) -> None:
    """Write the weights of additive and general attention on the same sentences."""
    runs = {name: trained(folder, name) for name in ("additive", "general")}
    write("sentences", {name: alignments(run, MORE) for name, run in runs.items()})


def lengths(folder: Path) -> None:
    """Write texts of one to six sentences as both kinds translate them, and measured BLEU."""
    texts = [" ".join(pair[0] for pair in LONG[:n]) for n in range(1, len(LONG) + 1)]
    expected = [" ".join(pair[1] for pair in LONG[:n]) for n in range(1, len(LONG) + 1)]
    said = {
        name: make_translator([trained(folder, f"joined-{name}")])(texts)
        for name in ("none", "additive", "general")
    }
    with (DOCS / "results" / "length.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == "joined"]
    bleu = {
        name: [
            [row["words"], round(float(row["bleu"]), 1)] for row in rows if row["attention"] == name
        ]
        for name in ("none", "additive", "general")
    }
    write("lengths", {"texts": texts, "expected": expected, "said": said, "bleu": bleu})


def images(folder: Path) -> None:
    """Write images of digits, and where the reader looked for each."""
    run = trained(folder, "digits")
    split = run.source.load_split(run.config, run.config.data, "test", limit=IMAGES)
    texts = [references[0] for references in split.references]
    pixels = run.source.rows(split.sources).read(np.arange(IMAGES))
    weights = [each.weights for each in make_attender([run])(split.sources, texts)]
    write(
        "images",
        [
            {"image": _png(image), "text": text, "weights": rounded(weight)}
            for image, text, weight in zip(pixels, texts, weights, strict=True)
        ],
    )


def _png(image: np.ndarray) -> str:
    """Return pixels as the address of a PNG."""
    low, high = float(image.min()), float(image.max())
    pixels = (255 * (np.asarray(image, float).squeeze() - low) / (high - low)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def events(folder: Path) -> None:
    """Write the visits of a few patients, the weight of each and what is said after each visit."""
    run = trained(folder, "pbcseq")
    data = run.source.load_split(run.config, run.config.data, "test")
    found = make_predictor([run])(data)
    people: dict[Any, list[int]] = {}
    for n, person in enumerate(data.people):
        people.setdefault(person, []).append(n)
    changes = {
        person: np.ptp(found.probabilities[rows]) * (len(rows) > 4)
        for person, rows in people.items()
    }
    chosen = sorted(changes, key=lambda person: -changes[person])[:PEOPLE]
    write(
        "events",
        [
            [
                {
                    "days": data.times[data.starts[n] : data.ends[n]].astype(int).tolist(),
                    "weights": rounded((found.weights or [])[n]),
                    "probability": round(float(found.probabilities[n]), 3),
                }
                for n in people[person]
            ]
            for person in chosen
        ],
    )


def main() -> None:
    """Make all of them, or those that are named."""
    makers = {one.__name__: one for one in (lengths, sentences, images, events, mechanisms)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/figures"), metavar="DIR")
    parser.add_argument("only", nargs="*", choices=[*makers, []], metavar="FIGURE")
    options = parser.parse_args()
    for folder in (FIGURES, PICTURES):
        folder.mkdir(parents=True, exist_ok=True)
    for name in options.only or makers:
        makers[name](options.runs)


if __name__ == "__main__":
    main()
