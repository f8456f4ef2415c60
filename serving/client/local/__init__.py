"""Exported models in this process, on onnxruntime, NumPy and sentencepiece: no server.

from serving.client.local import LocalTranslator

translator = LocalTranslator("models/en-fr")
print(translator.translate(["She is eating a green apple."])[0].text)
"""

from serving.client.local.predictor import LocalPredictor
from serving.client.local.reader import LocalReader
from serving.client.local.translator import LocalTranslator

__all__ = ["LocalPredictor", "LocalReader", "LocalTranslator"]
