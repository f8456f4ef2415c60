"""A GPU in one report: python benchmarks/gpu.py --backend jax --minutes 9 --output DIR

The machine and its rates, training beside stock Keras, searches, a preset from
the command to its last epoch, CUDA graphs of whole loops, every layer beside the values held to
NumPy, additive attention beside the plain formula and the floor. Each row is written to
DIR/rows.jsonl as it comes. When the minutes are over, whatever runs is stopped, and
DIR/report.json and DIR/report.md hold what there is. `--tiny` runs everything on sizes that
measure nothing, to see that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TITLES = {
    "machine": "The machine",
    "training": "Training: target tokens a second",
    "decoding": "Searches of models that have learned nothing: target tokens a second",
    "preset": "A preset, from the command on",
    "graphs": "Training with CUDA graphs of whole loops",
    "layers": "Layers, largest difference from the values held to NumPy",
    "attention": "Additive attention: milliseconds, MB at most, share of the floor",
}
STEPS = tuple(TITLES)
# Of the step `graphs`. Loops whose trip count is known go into a graph step after step.
GRAPHS = (
    "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1 "
    "--xla_gpu_command_buffer_unroll_loops=true"
)


def measure(step: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Give the rows of a step; in a process of its own."""
    if step == "preset":
        from gpu_parts import preset

        yield from preset.measure(options.tiny, options.prepared)
    elif step == "attention":
        from gpu_parts import attention

        yield from attention.measure(options.tiny, json.loads(options.rates))
    elif options.backend == "tensorflow" and step in ("training", "decoding", "graphs"):
        from gpu_parts import cases

        yield from cases.measure(step, options.tiny)
    elif step in ("decoding", "graphs"):
        yield {"case": "not run: measured on TensorFlow alone"}
    else:
        from gpu_parts import layers, machine, training

        module = {"machine": machine, "layers": layers, "training": training}[step]
        yield from module.measure(options.tiny)


def run_step(step: str, options: argparse.Namespace, seconds: float, rates: dict) -> list[dict]:
    """Run a step for so many seconds at most; return the rows that it gave."""
    command = [
        *(sys.executable, __file__, "--backend", options.backend, "--step", step),
        *("--output", str(options.output.absolute()), "--rates", json.dumps(rates)),
        *(("--tiny",) if options.tiny else ()),
        *(("--prepared", str(options.prepared.absolute())) if options.prepared else ()),
    ]
    rows: list[dict] = []
    environment = {**os.environ, "KERAS_BACKEND": options.backend}
    if step == "graphs":
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {GRAPHS}"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        ended = False

        def stop(*_: Any) -> None:
            nonlocal ended
            ended = True
            os.killpg(process.pid, signal.SIGKILL)

        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
        for line in process.stdout:
            if not line.startswith('{"step"'):
                continue  # a library's own words
            row = json.loads(line)
            rows.append(row)
            with (options.output / "rows.jsonl").open("a") as file:
                file.write(line)
            print("  ".join(f"{key} {_cell(value)}" for key, value in row.items()), flush=True)
        status = process.wait()
        signal.setitimer(signal.ITIMER_REAL, 0)
    if ended:
        rows.append({"step": step, "case": "stopped: the minutes are over"})
    elif status:
        rows.append({"step": step, "case": f"failed with status {status}"})
    return rows


def write_report(rows: list[dict], options: argparse.Namespace) -> None:
    """Write report.json and report.md."""
    facts = {"backend": options.backend, "tiny": options.tiny, "date": time.strftime("%Y-%m-%d")}
    (options.output / "report.json").write_text(json.dumps({**facts, "rows": rows}, indent=1))
    about = ", ".join(f"{key} {value}" for key, value in facts.items())
    text = [f"# GPU report\n\n{about}\n"]
    for step in STEPS:
        mine = [
            {k: v for k, v in row.items() if k != "step"} for row in rows if row["step"] == step
        ]
        if not mine:
            continue
        columns = list(dict.fromkeys(key for row in mine for key in row))
        text += [
            f"\n## {TITLES[step]}\n",
            f"| {' | '.join(columns)} |",
            "|---" * len(columns) + "|",
        ]
        for row in mine:
            text.append("| " + " | ".join(_cell(row.get(key, "")) for key in columns) + " |")
    (options.output / "report.md").write_text("\n".join(text) + "\n")


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        epilog="example: python benchmarks/gpu.py --backend jax --minutes 9 --output gpu-jax",
    )
    add = parser.add_argument
    add("--backend", choices=("jax", "torch", "tensorflow"), default="jax")
    add("--minutes", type=float, default=9, help="time budget of everything")
    add("--output", type=Path, default=Path("gpu-report"), help="folder of the report")
    add("--prepared", type=Path, help="a run that training.prepare made, to train to its end")
    add("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="what to measure")
    add("--tiny", action="store_true", help="sizes that measure nothing")
    add("--step", choices=STEPS, help=argparse.SUPPRESS)
    add("--rates", default="{}", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    options = parse()
    if options.step:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        for row in measure(options.step, options):
            print(json.dumps({"step": options.step, **row}), flush=True)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "rows.jsonl").write_text("")
    ends = time.monotonic() + options.minutes * 60
    rows: list[dict] = []
    rates = {"copy_gb_per_s": float("inf"), "tanh_per_s": float("inf")}
    for step in options.steps:
        left = ends - time.monotonic()
        if left <= 0:
            rows.append({"step": step, "case": "not run: the minutes are over"})
        else:
            rows += run_step(step, options, left, rates)
        for row in rows:
            rates |= {key: row[key] for key in rates if key in row}
        write_report(rows, options)
    print(f"Report: {options.output / 'report.md'}")
    wrong = [r for r in rows if r.get("right") == "NO" or r["case"].startswith("failed")]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
