"""A voice of no sound: sherpa-onnx itself says which words and tokens it finds in a text."""

import re

import numpy as np
import onnx
import sherpa_onnx
from onnx import TensorProto, helper

PUNCTUATION = ".,!?;:"
UNIT = 1e-3  # a sample of its audio is the number of a token in this unit
METADATA = {
    **{"sample_rate": "8000", "add_blank": "0", "n_speakers": "1", "version": "2", "jieba": "0"},
    **{"language": "English", "comment": "none", "punctuation": ". , ! ? ; :"},
}
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
SCALES = {"noise_scale": FLOAT, "length_scale": FLOAT}
MATCHA = ("has_espeak", "pad_id", "use_eos_bos")
VITS = {"x": INT, "x_length": INT, **SCALES, "noise_scale_w": FLOAT}
# Of each kind of voice its inputs, the first of which are tokens, and metadata.
KINDS = {
    "vits": (VITS, {"model_type": "vits", "n_speakers": "0"}),
    "melo": (
        {"x": INT, "x_length": INT, "tones": INT, "sid": INT, **VITS},
        {"model_type": "melo-vits", "comment": "melo"},
    ),
    "kokoro": (
        {"tokens": INT, "style": FLOAT, "speed": FLOAT},
        {"model_type": "kokoro", "has_espeak": "1", "style_dim": "510,1,2", "voice": "en-us"},
    ),
    "matcha": (
        {"x": INT, "x_length": INT, **SCALES},
        {"model_type": "matcha-tts", "jieba": "1", **dict.fromkeys(MATCHA, "0")},
    ),
}


def save(path, inputs, output, nodes, metadata, constants=()):
    """Write a model; of its inputs tokens, tones and styles have two axes."""
    info = helper.make_tensor_value_info
    wide = {"x": [1, "L"], "tokens": [1, "L"], "tones": [1, "L"], "style": [1, 2], "mel": None}
    graph = helper.make_graph(
        nodes,
        "voice",
        [info(name, dtype, wide.get(name, [1])) for name, dtype in inputs.items()],
        [info(output, FLOAT, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)


def save_voice(path, kind):
    """Write a model of a kind whose audio is the ids that it is given."""
    inputs, metadata = KINDS[kind]
    node = helper.make_node
    unit = helper.make_tensor("unit", FLOAT, [], [UNIT])
    axis = helper.make_tensor("axis", INT, [1], [0])
    nodes = [
        node("Cast", [next(iter(inputs))], ["ids"], to=FLOAT),
        node("Mul", ["ids", "unit"], ["samples"]),
        node("Unsqueeze", ["samples", "axis"], ["y"]),
    ]
    save(path, inputs, "y", nodes, {**METADATA, **metadata}, [unit, axis])


class Voice:
    """A voice with tokens and a lexicon; `capfd` has what it prints."""

    def __init__(self, folder, tokens, lexicon, capfd, kind="vits"):
        self.names, self._capfd = dict(enumerate(tokens)), capfd
        paths = {name: str(folder / name) for name in ("voice.onnx", "tokens.txt", "lexicon.txt")}
        save_voice(paths["voice.onnx"], kind)
        lines = "".join(f"{token} {number}\n" for number, token in enumerate(tokens))
        (folder / "tokens.txt").write_text(lines, encoding="utf-8")
        (folder / "lexicon.txt").write_text(lexicon, encoding="utf-8")
        capfd.readouterr()
        files = {name: paths[f"{name}.txt"] for name in ("tokens", "lexicon")}
        if kind == "kokoro":
            np.zeros(510 * 2, "float32").tofile(folder / "voices.bin")
            files |= {"model": paths["voice.onnx"], "voices": str(folder / "voices.bin")}
            model = {"kokoro": sherpa_onnx.OfflineTtsKokoroModelConfig(**files)}
        elif kind == "matcha":
            vocoder = str(folder / "hifigan.onnx")
            about = {"model_type": "hifigan", "sample_rate": "8000"}
            node = helper.make_node("Identity", ["mel"], ["audio"])
            save(vocoder, {"mel": FLOAT}, "audio", [node], about)
            files |= {"acoustic_model": paths["voice.onnx"], "vocoder": vocoder}
            model = {"matcha": sherpa_onnx.OfflineTtsMatchaModelConfig(**files)}
        else:
            files["model"] = paths["voice.onnx"]
            model = {"vits": sherpa_onnx.OfflineTtsVitsModelConfig(**files)}
        config = sherpa_onnx.OfflineTtsConfig(
            model=sherpa_onnx.OfflineTtsModelConfig(**model), max_num_sentences=1
        )
        self._speech = sherpa_onnx.OfflineTts(config)
        self.complaints = capfd.readouterr().err

    def read(self, text):
        """The tokens of a text, and the words that the lexicon lacks."""
        samples = np.array(self._speech.generate(text).samples)
        printed = self._capfd.readouterr().err
        lost = re.findall(r"OOV (.*)\. Ignore it!", printed)
        lost += re.findall(r"OOV (?:\w+ skipped: )?'(.*)'\n", printed)
        return [self.names[number] for number in np.rint(samples / UNIT).astype(int)], lost
