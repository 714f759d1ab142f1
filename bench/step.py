#!/usr/bin/env python3
"""Measures what share of sgemm's speed a whole training step of Patina reaches, on a quiet machine.

usage: bench/step.py NAME=MODEL.gguf ... [--shape smollm2-135m] [--context 512] [--rounds 3] [--steps 3] [--json FILE]

Share = tokens a second x operations of a token / speed of OpenBLAS's sgemm on an F32 copy of the same frozen products. In each round
sgemm (by patina gemmbench, which holds the lock of benchmarks) and every model take turns, rank 16 on all sites, all tokens
supervised, sequences as long as the context, --recompute off. Prints medians. The operations of a token are counted by this formula:
  4 P_sites + 4 P_head + layers 14 H C (mean of the keys a query sees) + 6 (multiply-adds of the adapter)
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {
    "smollm2-135m": dict(layers=30, d=576, h=9, g=3, c=64, f=1536, v=49152),
    "llama3.2-1b": dict(layers=16, d=2048, h=32, g=8, c=64, f=8192, v=128256),
}
RANK = 16
# Both name kernels of OpenBLAS for other processors than this one.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}


def sites(s):
    """K x N of the frozen products of a layer."""
    q, kv = s["h"] * s["c"], s["g"] * s["c"]
    return [(s["d"], q), (s["d"], kv), (s["d"], kv), (q, s["d"]), (s["d"], s["f"]), (s["d"], s["f"]), (s["f"], s["d"])]


def operations_of_token(s, context):
    frozen = s["layers"] * sum(k * n for k, n in sites(s)) + s["d"] * s["v"]
    attention = s["layers"] * 14 * s["h"] * s["c"] * (context + 1) / 2
    adapter = s["layers"] * RANK * sum(k + n for k, n in sites(s))
    return 4 * frozen + attention + 6 * adapter


def sgemm(arguments, s, directory):
    """GFLOP/s of sgemm over a forward and a backward of all frozen products."""
    operations = ms = 0
    for shape, count, products in [(arguments.shape, s["layers"], sites(s)), (f"{s['d']}x{s['v']}", 1, [(s["d"], s["v"])])]:
        file = pathlib.Path(directory) / "gemmbench.json"
        command = [arguments.patina, "gemmbench", "--model-shape", shape, "--seq", str(arguments.context), "--types", "BF16",
                   "--formulations", "fused", "--reps", "1", "--json", file]
        subprocess.run(list(map(str, command)), env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        result = json.loads(file.read_text())
        if result["machine"]["openblas"] is None:
            sys.exit("step.py: shares are of OpenBLAS's speed; install libopenblas0-pthread")
        if result["machine"]["busy"]:
            sys.exit("step.py: other processes keep this machine busy; run it on a quiet one")
        total = result["layerSums"][0]
        operations += count * 4 * arguments.context * sum(k * n for k, n in products)
        ms += count * (total["sgemmForwardMs"] + total["sgemmBackwardMs"])
    return operations / ms / 1e6


def train(arguments, model, directory, text):
    """Tokens a second of the steps after the first."""
    command = [arguments.patina, "train-lm", "--model", model, "--data", text, "--out", pathlib.Path(directory) / "adapter",
               "--overwrite", "--jsonl", "--loss-on", "all", "--context", arguments.context, "--batch-tokens",
               arguments.batch_tokens or arguments.context, "--micro-tokens", arguments.context, "--rank", RANK, "--steps",
               arguments.steps + 1, "--recompute", "off", "--weights", "mapped"]
    command += ["--threads", arguments.threads] if arguments.threads else []
    lines = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.splitlines()
    steps = [event for event in map(json.loads, lines) if event["event"] == "step"][1:]
    return sum(step["tokens"] for step in steps) / sum(step["ms"] for step in steps) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--batch-tokens", type=int, help="default: the context")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured in a round, after one that is not (default: 3)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--patina", default=ROOT / "build/src/patina")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    s = SHAPES[arguments.shape]
    models = dict(model.split("=", 1) for model in arguments.models)
    operations = operations_of_token(s, arguments.context)
    speeds, shares, blas = {name: [] for name in models}, {name: [] for name in models}, []
    with tempfile.TemporaryDirectory() as directory:
        text = pathlib.Path(directory) / "text.txt"
        # Every number is several tokens: sequences are as long as the context.
        text.write_text(" ".join(str(i * 7919 % 100000) for i in range(4 * max(arguments.batch_tokens or 0, arguments.context))))
        for _ in range(arguments.rounds):
            before = sgemm(arguments, s, directory)
            for name, model in models.items():
                speed = train(arguments, model, directory, text)
                after = sgemm(arguments, s, directory)
                blas.append(after)
                speeds[name].append(speed)
                shares[name].append(speed * operations * 2e-9 / (before + after))
                before = after
                print(f"{name:<8}{speed:>8.1f} tokens/s  sgemm {after:6.1f} GFLOP/s  share {shares[name][-1]:.3f}", flush=True)
    result = {"shape": arguments.shape, "context": arguments.context, "operationsOfToken": operations,
              "sgemmGflops": statistics.median(blas),
              "models": {name: {"tokensPerSecond": statistics.median(speeds[name]), "share": statistics.median(shares[name])}
                         for name in models}}
    print(f"\n{arguments.shape}, context {arguments.context}: {operations / 1e6:.0f} M operations a token, "
          f"sgemm {result['sgemmGflops']:.1f} GFLOP/s")
    for name, row in result["models"].items():
        print(f"{name:<8}{row['tokensPerSecond']:>8.1f} tokens/s{row['share']:>8.3f} x sgemm")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
