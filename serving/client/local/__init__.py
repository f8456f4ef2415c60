"""Exported models in this process, on onnxruntime, NumPy and sentencepiece: no server.

from serving.client.local import LocalTranslator

translator = LocalTranslator("models/en-fr")
print(translator.translate(["She is eating a green apple."])[0].text)
"""

from serving.client.local.readers import LocalPredictor, LocalReader
from serving.client.local.translator import LocalTranslator

__all__ = ["MODELS", "LocalPredictor", "LocalReader", "LocalTranslator"]

MODELS = {model.task: model for model in (LocalTranslator, LocalReader, LocalPredictor)}
