"""A GPU in one report: python benchmarks/gpu.py --backend jax --minutes 9 --output DIR

Training beside stock Keras, searches, a preset from the command to its last epoch, the machine and
its rates, every layer beside the values held to NumPy, additive attention beside the plain formula
and the floor. Each case is a process with a time of its own, and each row is written to
DIR/rows.jsonl as it comes; a case that did not end has a row that says after how many seconds.
DIR/report.json and DIR/report.md hold what there is. `--flags` trains the first case with XLA_FLAGS
of one's own; `--ncu` has the time of each kernel of a step. `--tiny` runs everything on sizes that
measure nothing, to see that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TITLES = {
    "training": "Training: target tokens a second",
    "preset": "A preset, from the command on",
    "decoding": "Searches of models that have learned nothing: target tokens a second",
    "flags": "Training with other flags of XLA",
    "kernels": "Kernels of a training step: microseconds",
    "machine": "The machine",
    "layers": "Layers, largest difference from the values held to NumPy",
    "attention": "Additive attention: milliseconds, MB at most, share of the floor",
}


class Task(NamedTuple):
    """A process: what it measures, and for how many seconds at most."""

    step: str
    case: str = ""
    seconds: float = 600
    flags: str | None = None  # of XLA, in place of the library's own


FIRST = "tatoeba-en-fr"
NO_GPU = 3  # exit status of a step
# Launches between the two calls of `gpu_parts/profile.py` alone.
NCU = (
    *("ncu", "--profile-from-start", "off", "--metrics", "gpu__time_duration.sum", "--csv"),
    *("--page", "details", "--clock-control", "none", "--target-processes", "all"),
)
# The first seven take nine minutes at most; the rest is measured where these were done sooner.
TENSORFLOW = (
    Task("training", FIRST, 75),
    Task("training", "lstm-512", 60),
    Task("training", "gnmt", 120),
    Task("preset", "cold", 100),
    Task("preset", "warm", 60),
    Task("decoding", "gnmt-greedy", 70),
    Task("training", "stock-512", 40),
    Task("machine", seconds=60),
    *(Task("decoding", name, 60) for name in ("greedy", "beam-5", "gnmt-beam-5")),
    Task("training", "README's model", 60),
    Task("layers"),
    Task("attention"),
)
OTHERS = tuple(map(Task, ("machine", "training", "preset", "layers", "attention")))


def tasks_of(options: argparse.Namespace) -> list[Task]:
    """Return what is to be measured, the most important first."""
    tasks = TENSORFLOW if options.backend == "tensorflow" else OTHERS
    chosen = [x for x in tasks if not options.only or {x.step, x.case} & set(options.only)]
    if options.flags:
        chosen = [Task("flags", FIRST, 75, flags) for flags in options.flags]
    return [Task("kernels", FIRST, 300)] if options.ncu else chosen


def measure(step: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Give the rows of a step; in a process of its own."""
    if step == "preset":
        from gpu_parts import preset

        yield from preset.measure(options.tiny, options.prepared, options.case, options.output)
    elif step == "attention":
        from gpu_parts import attention

        yield from attention.measure(options.tiny, json.loads(options.rates))
    elif options.backend == "tensorflow" and step not in ("machine", "layers"):
        from gpu_parts import cases

        yield cases.measure(step, options.case, options.tiny)
    else:
        from gpu_parts import layers, machine, training

        module = {"machine": machine, "layers": layers, "training": training}[step]
        yield from module.measure(options.tiny)


def run_task(
    task: Task, options: argparse.Namespace, left: float, rates: dict, keep: Callable[..., None]
) -> None:
    """Run a task within its time and the seconds that are left; `keep` takes each row it gives."""
    command = [
        *(sys.executable, __file__, "--backend", options.backend, "--step", task.step),
        *("--output", str(options.output.absolute()), "--rates", json.dumps(rates)),
        *(("--case", task.case) if task.case else ()),
        *(("--tiny",) if options.tiny else ()),
        *(("--prepared", str(options.prepared.absolute())) if options.prepared else ()),
    ]
    if task.step == "kernels" and shutil.which("ncu"):
        command = ["env", "LC_ALL=C", *NCU, *command]  # other places have commas for points
    facts = {} if task.flags is None else {"flags": task.flags or "none"}
    environment = {**os.environ, "KERAS_BACKEND": options.backend}
    if task.flags is not None:
        environment["XLA_FLAGS"] = task.flags
    began, limit = time.monotonic(), max(0.01, min(task.seconds * options.patience, left))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        ended = False

        def stop(*_: Any) -> None:
            nonlocal ended
            ended = True
            os.killpg(process.pid, signal.SIGKILL)

        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, limit)
        profiled, row = [], None
        for line in process.stdout:
            if line.startswith('{"step"'):  # no library's own words
                row = {**json.loads(line), **facts}
                keep(task, row)
            elif line.startswith('"'):
                profiled.append(line)
        status = process.wait()
        signal.setitimer(signal.ITIMER_REAL, 0)
    if status == NO_GPU:
        sys.exit(f"error: {options.backend} finds no GPU here; --tiny runs all on a processor")
    if task.step == "kernels":
        from gpu_parts import profile

        for launched in profile.rows(profiled, row and row.get("ms")):
            keep(task, launched)
    name = task.case or task.step
    if ended:
        seconds = time.monotonic() - began
        keep(task, {"case": name, **facts, "ended": f"no: stopped after {seconds:.0f} s"})
    elif status:
        keep(task, {"case": name, **facts, "ended": f"no: failed with status {status}"})


def write_report(rows: list[dict], options: argparse.Namespace) -> None:
    """Write report.json and report.md."""
    facts = {"backend": options.backend, "tiny": options.tiny, "date": time.strftime("%Y-%m-%d")}
    (options.output / "report.json").write_text(json.dumps({**facts, "rows": rows}, indent=1))
    about = ", ".join(f"{key} {value}" for key, value in facts.items())
    text = [f"# GPU report\n\n{about}\n"]
    for step, title in TITLES.items():
        mine = [
            {k: v for k, v in row.items() if k != "step"} for row in rows if row["step"] == step
        ]
        if not mine:
            continue
        columns = list(dict.fromkeys(key for row in mine for key in row))
        text += [
            f"\n## {title}\n",
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
    add("--only", nargs="+", metavar="NAME", help="steps and cases to measure; all by default")
    add("--flags", action="append", help="train with these XLA_FLAGS instead, '' for none; again")
    add("--ncu", action="store_true", help="time the kernels of a step instead, by Nsight Compute")
    add("--patience", type=float, default=1, help="multiplies the time of each case")
    add("--tiny", action="store_true", help="sizes that measure nothing")
    add("--step", choices=TITLES, help=argparse.SUPPRESS)
    add("--case", default="", help=argparse.SUPPRESS)
    add("--rates", default="{}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (options.flags or options.ncu) and options.backend != "tensorflow":
        parser.error("--flags and --ncu expected --backend tensorflow")
    return options


def main() -> None:
    """Run the command."""
    options = parse()
    if options.step:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        if options.backend == "tensorflow":
            from training.command.native import start_tensorflow

            start_tensorflow()
        from gpu_parts import calls

        # Presets and layers are processes of their own, which JAX would leave no memory.
        asks = not options.tiny and options.step not in ("preset", "layers")
        if asks and not calls.on_gpu():
            sys.exit(NO_GPU)
        for row in measure(options.step, options):
            print(json.dumps({"step": options.step, **row}), flush=True)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "rows.jsonl").write_text("")
    ends = time.monotonic() + options.minutes * 60
    rows: list[dict] = []
    rates = {"copy_gb_per_s": float("inf"), "tanh_per_s": float("inf")}

    def keep(task: Task, row: dict) -> None:
        row = {"step": task.step, **row}
        rows.append(row)
        rates.update({key: row[key] for key in rates if key in row})
        with (options.output / "rows.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print("  ".join(f"{key} {_cell(value)}" for key, value in row.items()), flush=True)
        write_report(rows, options)

    for task in tasks_of(options):
        left = ends - time.monotonic()
        if left > 0:
            run_task(task, options, left, rates, keep)
        else:
            keep(task, {"case": task.case or task.step, "ended": "no: the minutes are over"})
    print(f"Report: {options.output / 'report.md'}")
    wrong = [r for r in rows if r.get("right") == "NO" or "failed" in r.get("ended", "")]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
