"""A program for ONNX folders, written from docs/serving/onnx.md and from nothing else.

It imports no module of this repository: a caller in another language has the page alone.
"""

import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import onnxruntime


class Program:
    """A translator of texts."""

    def __init__(self, folder):
        folder = Path(folder)
        self.manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        entries = self.manifest["tokenizers"]
        self.source, self.target = (
            tokenizer(folder, entries[side]) for side in ("source", "target")
        )
        self.copies = self.manifest.get("copies", False)
        self.session = onnxruntime.InferenceSession(folder / "translator.onnx")

    def translate(self, text):
        """Return the answer to a text and its score."""
        settings = self.manifest["settings"]
        tokens = self.source.split(clean(text))[: settings["max_source_length"]]
        ids = self.source.ids(tokens, self.copies)
        if not ids:
            return "", 0.0
        found, score = self.pronounce(ids)
        return self.target.join(found, tokens), score

    def run(self, ids, weights=False):
        settings = self.manifest["settings"]
        given = {
            "ids": np.array([ids], "int64"),
            "beam_width": np.array([settings["beam_width"]], "int64"),
            "num_results": np.array([1], "int64"),
            "length_penalty": np.array(settings["length_penalty"], "float32"),
            "with_weights": np.array([weights]),
        }
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, given), strict=True))

    def pronounce(self, ids):
        """Return the ids of an answer, and its score."""
        spelling = self.manifest.get("spelling")
        tag = tag_of(ids, spelling)
        n = len(ids) - tag
        if spelling is None or n <= spelling["whole"]:
            replaces = self.manifest["settings"].get("replaces_unknown", False)
            out = self.run(ids, replaces)
            found = up_to_end(out["found"][0][0].tolist())
            if replaces:
                looked = out["weights"][0][0].argmax(-1).tolist()
                found = [
                    self.target.size + looked[t] if id == 1 else id for t, id in enumerate(found)
                ]
            return found, float(out["scores"][0][0])
        context = spelling["context"]
        core = spelling["window"] - 2 * context
        firsts = [0, *range(core + context, n - context, core)]
        kept, scores = [], []
        for first, end in zip(firsts, [*firsts[1:], n], strict=True):
            start = max(0, first - context)
            out = self.run(ids[:tag] + ids[tag + start : tag + end + context], True)
            scores.append(float(out["scores"][0][0]))
            for t, id in enumerate(up_to_end(out["found"][0][0].tolist())):
                place = start + max(0, out["weights"][0][0][t].argmax() - tag)
                if first <= place < end:
                    kept.append(id)
        return kept, sum(scores) / len(scores)


def tag_of(ids, spelling):
    tag = (spelling or {}).get("tag")
    if tag is None or ids[0] != tag["open"] or tag["close"] not in ids:
        return 0
    k = ids.index(tag["close"]) + 1
    if ids[k : k + 1] == [tag["space"]]:
        k += 1
    return k if k <= tag["longest"] and k < len(ids) else 0


def up_to_end(ids):
    return ids[: ids.index(3)] if 3 in ids else ids


def clean(text):
    text = unicodedata.normalize("NFC", text.replace("\ufeff", ""))
    white = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in WHITE) + "]+"
    return re.sub(white, " ", text).strip(" ")


WHITE = [(9, 13), (28, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)]
WHITE += [(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]


def tokenizer(folder, entry):
    return Pieces(folder, entry) if entry["kind"] == "sentencepiece" else Listed(folder, entry)


class Pieces:
    def __init__(self, folder, entry):
        import sentencepiece

        self.model = sentencepiece.SentencePieceProcessor(model_file=str(folder / entry["file"]))
        self.size = entry["size"]

    def split(self, text):
        return self.model.encode(text)

    def ids(self, tokens, copies):
        return tokens

    def join(self, ids, tokens):
        return self.model.decode([id for id in ids if id > 3])


class Listed:
    def __init__(self, folder, entry):
        state = json.loads((folder / entry["file"]).read_text("utf-8"))
        self.kind, self.size, self.tokens = entry["kind"], entry["size"], state["tokens"]
        self.numbers = {token: place + 4 for place, token in enumerate(self.tokens)}
        self.cases = state.get("cases")
        self.runs = state.get("characters")

    def split(self, text):
        if self.kind == "symbols":
            return text.split(" ") if text else []
        if self.kind == "words":
            return self.words(text)
        if self.kind == "letters":
            text = unicodedata.normalize("NFD", text)
        for capital, small in (self.cases or {}).items():
            if len(capital) > 1:
                text = text.replace(capital, small)
        if "Σ" in (self.cases or {}) and "ς" in self.numbers:
            text = "".join(
                "ς"
                if c == "Σ" and is_letter(text[n - 1 : n]) and not is_letter(text[n + 1 :])
                else c
                for n, c in enumerate(text)
            )
        return list(text)

    def ids(self, tokens, copies):
        if copies:
            return [self.numbers.get(x, self.size + tokens.index(x)) for x in tokens]
        if self.kind in ("letters", "characters"):
            tokens = [x if x in self.numbers else self.small(x) for x in tokens]
        return [self.numbers.get(x, 1) for x in tokens]

    def small(self, letter):
        return letter.lower() if self.cases is None else self.cases.get(letter, letter)

    def words(self, text):
        inside = {
            name: "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in runs)
            for name, runs in self.runs.items()
        }
        text = re.sub(f"[{inside['spaces']}]+", " ", text).strip(" ")
        if not text:
            return []
        elided = "(?i:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)"
        ideograph, letter = (f"[{inside[name]}]" for name in ("ideographs", "letters"))
        word = f"▁?(?:{ideograph}|{elided}['’]|{letter}+(?:['’]{letter}+)*|[^▁])"
        return re.findall(word, f" {text}".replace(" ", "▁"))

    def join(self, ids, source):
        tokens = [
            self.tokens[id - 4] if id < self.size else source[id - self.size]
            for id in ids
            if id > 3
        ]
        if self.kind == "symbols":
            return " ".join(tokens)
        text = "".join(tokens)
        if self.kind == "letters":
            return unicodedata.normalize("NFC", text)
        return text.replace("▁", " ").strip(" ") if self.kind == "words" else text


def is_letter(text):
    return unicodedata.category(text[:1] or " ")[0] in "LM"
