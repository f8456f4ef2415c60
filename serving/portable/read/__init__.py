"""Exported models in this process, on onnxruntime, NumPy and sentencepiece: no server.

from serving.portable.read import LocalTranslator

translator = LocalTranslator("models/en-fr")
print(translator.translate(["She is eating a green apple."])[0].text)
"""

from serving.portable.read.lexicon import Pronouncer
from serving.portable.read.readers import LocalPredictor, LocalReader
from serving.portable.read.translator import LocalTranslator
from serving.portable.read.voices import read_columns, spoken_words

__all__ = [
    "MODELS",
    "LocalPredictor",
    "LocalReader",
    "LocalTranslator",
    "Pronouncer",
    "read_columns",
    "spoken_words",
]

MODELS = {model.task: model for model in (LocalTranslator, LocalReader, LocalPredictor)}
