"""A voice of no sound: sherpa-onnx itself says which words and tokens it finds in a text."""

import re

import numpy as np
import onnx
import sherpa_onnx
from onnx import TensorProto, helper

UNIT = 1e-3  # a sample of its audio is the number of a token in this unit
METADATA = {
    **{"model_type": "vits", "sample_rate": "8000", "add_blank": "0", "n_speakers": "0"},
    **{"language": "English", "comment": "none", "punctuation": ". , ! ? ; :"},
}


def save_voice(path):
    """Write a VITS model whose audio is the ids that it is given."""
    info, node = helper.make_tensor_value_info, helper.make_node
    scales = ("noise_scale", "length_scale", "noise_scale_w")
    inputs = [info("x", TensorProto.INT64, [1, "L"]), info("x_length", TensorProto.INT64, [1])]
    inputs += [info(name, TensorProto.FLOAT, [1]) for name in scales]
    unit = helper.make_tensor("unit", TensorProto.FLOAT, [], [UNIT])
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [0])
    nodes = [
        node("Cast", ["x"], ["ids"], to=TensorProto.FLOAT),
        node("Mul", ["ids", "unit"], ["samples"]),
        node("Unsqueeze", ["samples", "axis"], ["y"]),
    ]
    outputs = [info("y", TensorProto.FLOAT, [1, 1, "L"])]
    graph = helper.make_graph(nodes, "voice", inputs, outputs, [unit, axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, METADATA)
    onnx.save(model, path)


class Voice:
    """A voice with tokens and a lexicon; `capfd` has what it prints."""

    def __init__(self, folder, tokens, lexicon, capfd):
        self.names, self._capfd = dict(enumerate(tokens)), capfd
        paths = {name: str(folder / name) for name in ("voice.onnx", "tokens.txt", "lexicon.txt")}
        save_voice(paths["voice.onnx"])
        lines = "".join(f"{token} {number}\n" for number, token in enumerate(tokens))
        (folder / "tokens.txt").write_text(lines, encoding="utf-8")
        (folder / "lexicon.txt").write_text(lexicon, encoding="utf-8")
        capfd.readouterr()
        vits = sherpa_onnx.OfflineTtsVitsModelConfig(
            model=paths["voice.onnx"], lexicon=paths["lexicon.txt"], tokens=paths["tokens.txt"]
        )
        config = sherpa_onnx.OfflineTtsConfig(
            model=sherpa_onnx.OfflineTtsModelConfig(vits=vits), max_num_sentences=0
        )
        self._speech = sherpa_onnx.OfflineTts(config)
        self.complaints = capfd.readouterr().err

    def read(self, text):
        """The tokens of a text, and the words that the lexicon lacks."""
        samples = np.array(self._speech.generate(text).samples)
        printed = self._capfd.readouterr().err
        lost = re.findall(r"OOV (.*)\. Ignore it!", printed)
        return [self.names[number] for number in np.rint(samples / UNIT).astype(int)], lost
