"""Compile FOLDER/NAME.pb or .mlir for an H100, without one, and count what it launches.

`python benchmarks/gpu_parts/launches.py CASES.json FOLDER`, which benchmarks/gpu_kernels.py runs in
an environment that has JAX and its CUDA plugin, and nothing of this project. Each case is a line of
JSON. FOLDER keeps NAME.thunks.txt, what runs, in order, and NAME.hlo.txt, each kernel's formula.

Kernels of a loop's body count as often as the loop runs. Where XLA does not know how often, so that
the host is asked each time, it is the case's `iterations`, or the longer side of its shape.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

CARD = """
gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 }
platform_name: "CUDA" dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 patch: 0 } device_description_str: "NVIDIA H100 80GB HBM3"
"""
WRAPPERS = {"kCommandBuffer", "kConditional", "kDynamicSliceFusion", "kSequential"}
TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


@dataclass
class Thunk:
    """A line of XLA's list of what runs; `part` of a loop is its condition or its body."""

    kind: str
    name: str
    indent: int
    part: str = ""
    children: list[Thunk] = field(default_factory=list)


def parse_thunks(text: str) -> Thunk:
    """Return the tree of a list of thunks, indented as its loops are nested."""
    root = Thunk("root", "", -1)
    stack, part = [root], ""
    for line in text.splitlines():
        words, indent = line.strip(), len(line) - len(line.lstrip())
        if words in ("condition:", "body:"):
            while stack[-1].kind != "kWhile":
                stack.pop()
            part = words[:-1]
        elif match := re.match(r"\d+: (k\w+)\s+\[[^\]]*\]\s*(\S*)", words):
            while stack[-1].indent >= indent:
                stack.pop()
            thunk = Thunk(match[1], match[2], indent, part if stack[-1].kind == "kWhile" else "")
            stack[-1].children.append(thunk)
            stack.append(thunk)
    return root


def split_loops(thunks: list[Thunk]) -> tuple[list[Thunk], list[Thunk]]:
    """Return the kernels that these launch once, and the loops among them."""
    kernels: list[Thunk] = []
    loops: list[Thunk] = []
    for thunk in thunks:
        if thunk.kind == "kWhile":
            loops.append(thunk)
        elif thunk.kind in WRAPPERS:
            inner, nested = split_loops(thunk.children)
            kernels, loops = kernels + inner, loops + nested
        else:
            kernels.append(thunk)
    return kernels, loops


def count(case: dict, thunks: str, optimized: str, report: str) -> dict:
    """Return the row of a case, from what XLA wrote of it."""
    entry = optimized.split("\nENTRY ")[1]
    trips = [
        int(match[1]) if (match := TRIPS.search(line)) else None
        for line in entry.splitlines()
        if " while(" in line
    ]
    outside, loops = split_loops(parse_thunks(thunks).children)
    total, bodies = len(outside), []
    for loop, trip in zip(loops, trips, strict=True):
        body, _ = split_loops([x for x in loop.children if x.part == "body"])
        total += len(body) * (trip or case.get("iterations", max(case["shape"])))
        bodies.append({"kernels": len(body), "times": trip})
    return {
        "name": case["name"],
        "kernels": total,
        "outside_loops": len(outside),
        "loops": bodies,
        "known_trip_counts": sum(trip is not None for trip in trips),
        "mebibytes": round(int(re.search(r"Total bytes: (\d+)", report)[1]) / 2**20),
    }


def main(cases: Path, folder: Path) -> None:
    """Print the rows of all cases."""
    dump = folder.absolute() / "dump"
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    # Products by cuBLAS: without a card Triton's sizes are guesses, which split some products.
    os.environ["XLA_FLAGS"] = (
        f"--xla_dump_to={dump} --xla_dump_hlo_as_text --xla_gpu_enable_triton_gemm=false "
        + os.environ.get("XLA_FLAGS", "")
    )
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax, xla_client
    from jaxlib.mlir import ir

    card = topologies.get_topology_desc(platform="cuda", target_config=CARD, topology="1x1x1")
    device = card.devices[0]
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    for case in json.loads(cases.read_text(encoding="utf-8")):
        shutil.rmtree(dump, ignore_errors=True)
        path = folder / case["name"]
        with mlir.make_ir_context():
            if path.with_suffix(".mlir").exists():
                program = path.with_suffix(".mlir").read_text()
            else:
                serialized = path.with_suffix(".pb").read_bytes()
                program = str(ir.Module.parse(_jax.mlir.hlo_to_stablehlo(serialized)))
            copy, reshape = r"mhlo\.copy (%\w+) : (\S+)", r"stablehlo.reshape \1 : (\2) -> \2"
            module = ir.Module.parse(re.sub(copy, reshape, program))
            began = time.process_time()
            device.client.compile(module, _jax.DeviceList((device,)), options)
            seconds = time.process_time() - began
        texts = {}
        for name, ending in (
            ("thunks", "thunk_sequence_after_thunk_passes.txt"),
            ("hlo", "gpu_after_optimizations.txt"),
            ("memory", "memory-usage-report.txt"),
        ):
            (dumped,) = dump.glob(f"*{ending}")
            texts[name] = dumped.read_text()
            path.with_suffix(f".{name}.txt").write_text(texts[name])
        row = count(case, texts["thunks"], texts["hlo"], texts["memory"])
        print(json.dumps({**row, "compiling_s": seconds}), flush=True)
    shutil.rmtree(dump, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
