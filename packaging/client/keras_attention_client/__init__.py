"""A thin client of translators that TensorFlow Serving serves: grpcio and protobuf alone."""

from keras_attention_client.client import *  # noqa: F403
from keras_attention_client.client import __all__ as __all__
