"""Packaging for keras-attention-client: serving/client, serving/api and serving/portable/read.

It is taken from the repository around this folder, and is in the sdist.
"""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
PACKAGE = "keras_attention_client"
SERVING = "../../serving"
IS_SDIST = (HERE / PACKAGE).is_dir()
FOLDERS = {"": "client", ".api": "api", ".portable": "portable", ".portable.read": "portable/read"}
# In place of modules of the repository that find them where they are.
TAKEN = {"heat_map.py": "keras_attention/_plot.py"}
TAKEN |= {
    f"{name}.py": f"training/data/{name}.py"
    for name in ("_lists", "columns", "letters", "rules", "separators")
}
TAKEN["visible.py"] = "training/command/visible.py"


def renamed(source: str) -> str:
    """Return a module's source with this distribution's names."""
    source = source.replace("python -m serving.client", "keras-attention-client")
    source = source.replace("-e '.[", "'./packaging/client[")
    source = re.sub(r"(?<![\w./-])serving\.client(?=\.[a-z]|\b)", PACKAGE, source)
    names = "|".join(path.stem for path in map(Path, TAKEN) if path.stem != "heat_map")
    source = re.sub(rf"\btraining\.(?:data|command)\.({names})\b", rf"{PACKAGE}.\1", source)
    return re.sub(r"(?<![\w./-])serving(?=\.(?:api|portable)\b)", PACKAGE, source)


class BuildPy(build_py):
    """Builds the folders' modules, with those that are taken from elsewhere."""

    def run(self) -> None:
        """Build."""
        super().run()
        folder = Path(self.build_lib) / PACKAGE
        if not IS_SDIST:
            for name, path in TAKEN.items():
                (folder / name).write_bytes((HERE / "../.." / path).read_bytes())
            for path in folder.rglob("*.py"):
                path.write_text(renamed(path.read_text(encoding="utf-8")), encoding="utf-8")


class Sdist(sdist):
    """Has the modules as they are built."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Fill the sdist's directory."""
        super().make_release_tree(base_dir, [name for name in files if not name.startswith("..")])
        built = self.get_finalized_command("build_py")
        built.build_lib = base_dir
        built.run()


setup(
    name="keras-attention-client",
    version="0.1.0",
    description="A thin gRPC client of translators exported by keras-attention",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[PACKAGE + name for name in FOLDERS],
    package_dir={
        PACKAGE + name: f"{PACKAGE}{name.replace('.', '/')}" if IS_SDIST else f"{SERVING}/{folder}"
        for name, folder in FOLDERS.items()
    },
    package_data={PACKAGE: ["serving.*"], f"{PACKAGE}.portable.read": ["*.tsv"]},
    install_requires=["grpcio>=1.70,<2", "protobuf>=5.29"],
    extras_require={
        "plot": ["matplotlib>=3.8,<4"],
        "onnx": [
            "onnxruntime>=1.22,<2",
            "numpy>=1.26",
            "sentencepiece>=0.2,<0.3",
            "pillow>=10",
            "simplejpeg>=1.8,<2",
        ],
    },
    entry_points={"console_scripts": [f"keras-attention-client = {PACKAGE}.__main__:main"]},
    cmdclass={"build_py": BuildPy, "sdist": Sdist},
)
