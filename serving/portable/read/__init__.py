"""Exported models in this process, on onnxruntime, NumPy and sentencepiece: no server.

from serving.portable.read import LocalTranslator

translator = LocalTranslator("models/en-fr")
print(translator.translate(["She is eating a green apple."])[0].text)
"""

from serving.portable.read.readers import LocalPredictor, LocalReader
from serving.portable.read.translator import LocalTranslator

__all__ = ["MODELS", "LocalPredictor", "LocalReader", "LocalTranslator"]

MODELS = {model.task: model for model in (LocalTranslator, LocalReader, LocalPredictor)}
