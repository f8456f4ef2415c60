"""Exported models in this process, on onnxruntime, NumPy and sentencepiece: no server.

from serving.portable.read import LocalTranslator

translator = LocalTranslator("models/en-fr")
print(translator.translate(["She is eating a green apple."])[0].text)
"""

from serving.portable.read._pronouncer import Pronouncer
from serving.portable.read._readers import LocalPredictor, LocalReader
from serving.portable.read._translator import LocalTranslator
from serving.portable.read._voices import read_columns, spoken_words

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
