#!/usr/bin/env python3
"""Measures the training step of every kind of adapter beside LoRA's, and LoKr's beside what its operations must take, on a quiet machine.

usage: bench/adapter_kinds.py MODEL.gguf [--shape smollm2-135m] [--context 512] [--rounds 3] [--steps 3] [--json FILE]

In each round all kinds take turns, on all seven sites of every layer; a step is one sequence of the context's length. Prints medians over
the steps. "none" is a LoRA of rank 1 on layer 0's q alone: forward and backward of the whole model, next to no adapter. Where it says
"bar", that is the step without adapter and the kind's own operations (6 for each multiply-add of a token) at the speed of
sgemm (patina gemmbench). Needs the gguf package.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np
from gguf import GGUFWriter

from step import RANK, ROOT, SHAPES, sgemm, sites

KINDS = {
    "lora": dict(type="lora", rank=RANK),
    "dora": dict(type="dora", rank=RANK),
    "lokr 16/4": dict(type="lokr", dim=16, factor=4),
    "lokr 8/8": dict(type="lokr", dim=8, factor=8),
    "lokr whole/4": dict(type="lokr", dim=65536, factor=4),
}


def flags(kind):
    if kind["type"] == "lokr":
        return ["--adapter-type", "lokr", "--lokr-dim", kind["dim"], "--lokr-factor", kind["factor"]]
    return ["--adapter-type", kind["type"], "--rank", kind["rank"]]


def factor_pair(width, factor):
    if width % factor:
        factor = max(d for d in range(1, min(factor, math.isqrt(width)) + 1) if width % d == 0)
    return sorted((factor, width // factor))


def multiply_adds(kind, inside, outside):
    """Of a token through one site's branch (docs/adapters.md)."""
    if kind["type"] != "lokr":
        return kind["rank"] * (inside + outside)
    (l, k), (m, n), r = factor_pair(outside, kind["factor"]), factor_pair(inside, kind["factor"]), kind["dim"]
    if r < max(k, n) / 2:
        return m * n * r + l * m * r + l * r * k
    return min(m * n * k + l * m * k, l * m * n + l * n * k)


def write_least_adapter(path, s):
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 1.0)
    for half, shape in (("a", (1, s["d"])), ("b", (s["h"] * s["c"], 1))):
        writer.add_tensor(f"blk.0.attn_q.weight.lora_{half}", np.full(shape, 0.01, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def step_times(arguments, adapter, directory, text):
    """ms of the steps after the first."""
    command = [arguments.patina, "train-lm", "--model", arguments.model, "--data", text, "--out", directory / "out", "--overwrite",
               "--jsonl", "--loss-on", "all", "--context", arguments.context, "--batch-tokens", arguments.context, "--steps",
               arguments.steps + 1, "--recompute", "off", "--save-every", "end", *adapter]
    lines = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.splitlines()
    return [event["ms"] for event in map(json.loads, lines) if event["event"] == "step"][1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured in a round, after one that is not (default: 3)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--patina", default=ROOT / "build/src/patina")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    s = SHAPES[arguments.shape]
    kinds = {name: KINDS[name] for name in dict.fromkeys(["lora", *arguments.kinds])}
    times, blas = {name: [] for name in ["none", *kinds]}, []
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        least, text = directory / "least.gguf", directory / "text.txt"
        write_least_adapter(least, s)
        text.write_text(" ".join(str(i * 7919 % 100000) for i in range(4 * arguments.context)))
        for _ in range(arguments.rounds):
            blas.append(sgemm(arguments, s, directory))
            times["none"] += step_times(arguments, ["--init-adapter", least], directory, text)
            for name, kind in kinds.items():
                times[name] += step_times(arguments, flags(kind), directory, text)
    ms, gflops = {name: statistics.median(values) for name, values in times.items()}, statistics.median(blas)
    print(f"{arguments.shape}, context {arguments.context}, sgemm {gflops:.1f} GFLOP/s; without adapter {ms['none']:.0f} ms")
    rows = {}
    for name, kind in kinds.items():
        operations = 6 * arguments.context * s["layers"] * sum(multiply_adds(kind, *site) for site in sites(s))
        bar = ms["none"] + operations / gflops / 1e6
        rows[name] = {"ms": ms[name], "speedOfLora": ms["lora"] / ms[name], "gflop": operations / 1e9, "bar": bar}
        print(f"{name:<14}{ms[name]:>8.0f} ms  {ms['lora'] / ms[name]:.3f} of lora's speed  {operations / 1e9:6.1f} GFLOP  "
              f"{ms[name] / bar:.3f} x bar")
    if arguments.json:
        arguments.json.write_text(json.dumps({"sgemmGflops": gflops, "noneMs": ms["none"], "kinds": rows, "times": times}, indent=1) + "\n")


if __name__ == "__main__":
    main()
