"""Packaging for keras-attention-client: the modules of `serving` that need neither Keras nor NumPy.

They are taken from the repository around this folder, and are in the sdist.
"""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
PACKAGE = "keras_attention_client"
MODULES = {
    "arguments.py": "serving/arguments.py",
    "channel.py": "serving/channel.py",
    "client.py": "serving/client.py",
    "connection.py": "serving/connection.py",
    "drawing.py": "serving/drawing.py",
    "endpoint.py": "serving/endpoint.py",
    "errors.py": "serving/errors.py",
    "histories.py": "serving/histories.py",
    "heat_map.py": "keras_attention/plot.py",
    "messages.py": "serving/messages.py",
    "parser.py": "training/command/parser.py",
    "readers.py": "serving/readers.py",
    "reading.py": "serving/reading.py",
    "retries.py": "serving/retries.py",
    "translation.py": "serving/translation.py",
    "translator.py": "serving/translator.py",
}


def write_modules(folder: Path) -> None:
    """Write the modules with this distribution's names, unless they came with the sdist."""
    if (HERE / PACKAGE / "client.py").exists():
        return
    for name, file in MODULES.items():
        source = (HERE.parents[1] / file).read_text(encoding="utf-8")
        source = source.replace("python -m serving.client", "keras-attention-client")
        source = source.replace("'keras-attention[", "'keras-attention-client[")
        source = re.sub(r"(?<![\w./-])serving(?=\.[a-z]| import )", PACKAGE, source)
        (folder / name).write_text(source, encoding="utf-8")


class BuildPy(build_py):
    """Builds the package with the modules in it."""

    def run(self) -> None:
        """Build."""
        super().run()
        write_modules(Path(self.build_lib) / PACKAGE)


class Sdist(sdist):
    """Puts the modules into the sdist."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Fill the sdist's directory."""
        super().make_release_tree(base_dir, files)
        write_modules(Path(base_dir) / PACKAGE)


setup(
    name="keras-attention-client",
    version="0.1.0",
    description="A thin gRPC client of translators exported by keras-attention",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[PACKAGE],
    install_requires=["grpcio>=1.70,<2", "protobuf>=5.29"],
    extras_require={"plot": ["matplotlib>=3.8,<4"]},
    entry_points={"console_scripts": [f"keras-attention-client = {PACKAGE}.client:main"]},
    cmdclass={"build_py": BuildPy, "sdist": Sdist},
)
