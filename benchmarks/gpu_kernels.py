"""What a step launches on a GPU, counted without one: python benchmarks/gpu_kernels.py

The steps of recurrent models are short kernels one after another: their number decides the time.
Each case is lowered by Keras's backend, as `training.train` has it on a GPU, and compiled by XLA
for an H100. The count is the same on every machine. JAX's CUDA plugin compiles, in an environment
of its own under build/, which is made at the first call (200 MB).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = Path(__file__).parent / "gpu_parts"
COUNTS = PARTS / "kernel_counts.json"  # of TensorFlow
JAX = "0.10.2"
TIMES = ("tracing_s", "lowering_s", "compiling_s")
COLUMNS = ("case", "kernels", "loops: kernels × times", "trip counts known", "MiB")
COLUMNS += ("processor time of tracing, s", "of TensorFlow's or JAX's program, s", "of XLA, s")
SMALL = ("encoder_units", "decoder_units", "embedding_size", "attention_units", "readout_units")


def make_environment(folder: Path) -> Path:
    """Return the Python that has JAX with its CUDA plugin, which is installed if need be."""
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"jax=={JAX}", f"jaxlib=={JAX}"], check=True)
        plugins = [f"jax-cuda12-plugin=={JAX}", f"jax-cuda12-pjrt=={JAX}"]
        subprocess.run([*pip, "--no-deps", *plugins], check=True)
        (folder / "installed").touch()
    return python


def count_kernels(cases: list[dict], folder: Path, backend: str, environment: Path) -> list[dict]:
    """Return a row a case: kernels, loops, MiB; see gpu_parts/launches.py.

    Raises:
        RuntimeError: a case cannot be lowered or compiled; the last line says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*folder.glob("*.pb"), *folder.glob("*.mlir")):
        file.unlink()
    listed = folder.absolute() / "cases.json"
    listed.write_text(json.dumps(cases), encoding="utf-8")
    lowering = {
        "PYTHONPATH": f"{ROOT}:{PARTS.parent}",
        "KERAS_BACKEND": backend,
        "KERAS_ATTENTION_DEVICE": "gpu",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_FLAGS": "",
    }
    arguments = [str(listed), str(folder.absolute())]
    printed = _run([sys.executable, "-m", "gpu_parts.lowering", *arguments], lowering)
    python = make_environment(environment)
    compiled = _run([str(python), str(PARTS / "launches.py"), *arguments], {})
    lines = [
        [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        for text in (printed, compiled)
    ]
    return [row | times for times, row in zip(*lines, strict=True)]


def count_programs(preset: str, settings: Sequence[str] = ()) -> str:
    """Train a preset, of few units, as on a GPU; return how many programs XLA keeps, in words.

    All are there when the first epoch has been scored, which ends the training. XLA compiles them
    for the CPU: the number is that of a GPU.
    """
    words = [f"{key}=8" for key in SMALL] + list(settings)
    command = [sys.executable, "-um", "training.train", "--preset", preset, "--output"]
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            "KERAS_ATTENTION_DEVICE": "gpu",
            "XDG_CACHE_HOME": folder,
            "PYTHONPATH": str(ROOT),
        }
        command += [f"{folder}/run", *(word for x in words for word in ("--set", x))]
        said = "no shapes"
        with subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout or ():
                if "compiling" in line:
                    said = line.strip()
                if line.startswith("epoch "):
                    process.kill()
        if process.returncode > 0:
            raise RuntimeError(f"training.train --preset {preset} ended with {process.returncode}")
        programs = len(list(Path(folder, "keras-attention/xla").glob("*")))
    return f"{preset}: {programs} programs. {said}"


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def table(rows: list[dict]) -> str:
    """Return the rows as Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        loops = ", ".join(f"{loop['kernels']} × {loop['times'] or '?'}" for loop in row["loops"])
        trips = f"{row['known_trip_counts']} of {len(row['loops'])}"
        cells = [row["name"], f"{row['kernels']:,}", loops, trips, f"{row['mebibytes']:,}"]
        cells += [f"{row[time]:.1f}" if time in row else "" for time in TIMES]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        epilog="example: python benchmarks/gpu_kernels.py --only tatoeba-en-fr gnmt",
    )
    add = parser.add_argument
    add("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    add("--cases", type=Path, default=PARTS / "kernel_cases.json", help="a file like this one")
    add("--only", nargs="+", metavar="NAME", help="the cases of these names; default: all")
    add("--preset", help="count the programs that its training compiles, not kernels")
    add("--output", type=Path, default=ROOT / "build/gpu-kernels", help="what XLA wrote of each")
    add("--save", action="store_true", help="keep the counts, which benchmarks/gpu.py reads")
    add("--environment", type=Path, default=ROOT / "build/gpu-kernels-env", help="of JAX")
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    options = parse()
    if options.preset:
        print(count_programs(options.preset))
        return
    cases = json.loads(options.cases.read_text(encoding="utf-8"))
    names = [case["name"] for case in cases]
    for name in options.only or ():
        if name not in names:
            sys.exit(f"error: --only expected names among {', '.join(names)}. Received: {name}")
    cases = [case for case in cases if not options.only or case["name"] in options.only]
    if options.backend == "jax":  # the search is written for graphs of TensorFlow
        cases = [case for case in cases if case["kind"] != "search"]
    try:
        rows = count_kernels(cases, options.output, options.backend, options.environment)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
    print(table(rows))
    if options.save:
        text = json.dumps({row["name"]: row["kernels"] for row in rows}, indent=1)
        COUNTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
