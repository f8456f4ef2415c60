"""Packaging for keras-attention: the layers alone, or with the training and serving parts."""

from pathlib import Path

from setuptools import find_packages, setup

LIBRARY = ["keras>=3.13,<4", "numpy>=1.26"]
PLOT = ["matplotlib>=3.8,<4"]
TENSORFLOW = ["tensorflow>=2.21,<2.22"]
CLIENT = ["grpcio>=1.70,<2", "protobuf>=5.29"]
TRAINING = [
    *TENSORFLOW,
    *PLOT,
    "tensorflow-text>=2.21,<2.22",
    "tensorboard>=2.20,<3",
    "sentencepiece>=0.2,<0.3",
    "sacrebleu>=2.5,<3",
    "opencc>=1.4,<2",
]
SERVING = [
    *TRAINING,
    *CLIENT,
    "tensorflow-serving-api>=2.19,<2.22",
    "grpcio-health-checking>=1.70,<2",
]
DEV = [*SERVING, "pytest>=8,<10", "pytest-xdist>=3.6,<4", "ruff>=0.14,<0.16"]

setup(
    name="keras-attention",
    version="0.1.0",
    description="Attention for recurrent Keras models, from the layers to TensorFlow Serving",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["keras_attention*", "training*", "serving*"]),
    package_data={
        "training": ["presets/*.toml"],
        "serving": ["*.json", "deploy/*", "deploy/**/*"],
    },
    install_requires=LIBRARY,
    extras_require={
        "plot": PLOT,
        "training": TRAINING,
        "serving": SERVING,
        "client": CLIENT,
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        "backends": ["jax", "torch"],
        "dev": DEV,
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
