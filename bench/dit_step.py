#!/usr/bin/env python3
"""Measures a whole training step of the diffusion transformer on a slice of it, on a quiet machine.

usage: bench/dit_step.py NAME=MODEL ... [--shape 2b|xl] [--layers 2] [--tokens 375] [--rounds 3] [--steps 3] [--json FILE]

A model is a slice of the shape with so many layers (tools/make_dit_data.py model ... --layers 2, or patina convert of one). In each round
OpenBLAS's sgemm (by patina gemmbench, which holds the lock of benchmarks) and every model take turns, without recompute, on whole songs of
2 x tokens frames, adapters on all sites of all layers. Prints medians of
  share  operations of a step / time of a step / speed of sgemm on an F32 copy of the same frozen products, with LoRA of rank 16
  LoKr   speed with LoKr (dim 512, factor 6) beside that with LoRA of rank 16
Operations are counted as in bench/step.py: frozen products forward and backward, but the backward ones of the lowest layer's self q, k and v
and of every cross k and v, which no adapter needs; 14 H C a visible key of a query; 6 a multiply-add of the adapter.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from step import ENVIRONMENT, RANK, ROOT

SHAPES = {
    "2b": dict(bench="ace-step-2b", d=2048, f=6144, h=16, g=8, c=128, e=2048),
    "xl": dict(bench="ace-step-xl", d=2560, f=9728, h=32, g=8, c=128, e=2048),
}
WINDOW, CHANNELS, CONDITIONING = 128, 192, 24
KINDS = {"lora": ["--rank", RANK, "--alpha", 2 * RANK],
         "lokr": ["--adapter-type", "lokr", "--lokr-dim", 512, "--lokr-alpha", 512, "--lokr-factor", 6]}


def operations_of_step(s, layers, tokens):
    """Of LoRA on all sites."""
    d, q, kv = s["d"], s["h"] * s["c"], s["g"] * s["c"]
    window = sum(min(tokens - 1, i + WINDOW) - max(0, i - WINDOW) + 1 for i in range(tokens)) / tokens
    frozen = attention = adapter = 0
    for layer in range(layers):
        keys = tokens if layer % 2 else window
        for k, n, rows, backward in [(d, q, tokens, layer > 0), (d, kv, tokens, layer > 0), (d, kv, tokens, layer > 0), (q, d, tokens, True),
                                     (d, q, tokens, True), (d, kv, CONDITIONING, False), (d, kv, CONDITIONING, False), (q, d, tokens, True),
                                     (d, s["f"], tokens, True), (d, s["f"], tokens, True), (s["f"], d, tokens, True)]:
            frozen += (4 if backward else 2) * rows * k * n
            adapter += 6 * rows * RANK * (k + n)
        attention += 14 * q * tokens * (keys + CONDITIONING)
    frozen += 2 * tokens * 2 * CHANNELS * d + 2 * CONDITIONING * s["e"] * d + 4 * tokens * 128 * d
    return frozen + attention + adapter


def sgemm(arguments, directory):
    """GFLOP/s of sgemm over a forward and a backward of a layer's frozen products."""
    file = pathlib.Path(directory) / "gemmbench.json"
    command = [arguments.patina, "gemmbench", "--model-shape", SHAPES[arguments.shape]["bench"], "--seq", arguments.tokens, "--types",
               "BF16", "--formulations", "fused", "--reps", "1", "--json", file]
    subprocess.run(list(map(str, command)), env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result = json.loads(file.read_text())
    if result["machine"]["openblas"] is None:
        sys.exit("dit_step.py: shares are of OpenBLAS's speed; install libopenblas0-pthread")
    if result["machine"]["busy"]:
        sys.exit("dit_step.py: other processes keep this machine busy; run it on a quiet one")
    total, s = result["layerSums"][0], SHAPES[arguments.shape]
    q, kv = s["h"] * s["c"], s["g"] * s["c"]
    operations = 4 * arguments.tokens * s["d"] * (4 * q + 2 * kv + 3 * s["f"])
    return operations / (total["sgemmForwardMs"] + total["sgemmBackwardMs"]) / 1e6


def train(arguments, model, kind, directory):
    """Milliseconds of a step, of those after the first."""
    command = [arguments.patina, "train-dit", "--model", model, "--data", pathlib.Path(directory) / "songs", "--out",
               pathlib.Path(directory) / "adapter", "--overwrite", "--jsonl", "--crop", "whole", "--batch", 1, "--grad-accum", 1, "--steps",
               arguments.steps + 1, "--recompute", "off", "--weights", "mapped", "--target-loss", 0, *KINDS[kind]]
    lines = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.splitlines()
    return statistics.mean(event["ms"] for event in [e for e in map(json.loads, lines) if e["event"] == "step"][1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--shape", choices=SHAPES, default="2b")
    parser.add_argument("--layers", type=int, default=2, help="of the models (default: 2)")
    parser.add_argument("--tokens", type=int, default=375)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured in a round, after one that is not (default: 3)")
    parser.add_argument("--patina", default=ROOT / "build/src/patina")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    models = dict(model.split("=", 1) for model in arguments.models)
    operations = operations_of_step(SHAPES[arguments.shape], arguments.layers, arguments.tokens)
    shares, ratios, lora_ms, blas = {n: [] for n in models}, {n: [] for n in models}, {n: [] for n in models}, []
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, ROOT / "tools/make_dit_data.py", "songs", pathlib.Path(directory) / "songs", "--shape",
                        arguments.shape, "--seconds", str(2 * arguments.tokens / 25), "--tokens", str(CONDITIONING)], check=True)
        for _ in range(arguments.rounds):
            before = sgemm(arguments, directory)
            for name, model in models.items():
                lora = train(arguments, model, "lora", directory)
                after = sgemm(arguments, directory)
                lokr = train(arguments, model, "lokr", directory)
                lora_ms[name].append(lora)
                blas.append(after)
                shares[name].append(operations / lora * 2e-6 / (before + after))
                ratios[name].append(lora / lokr)
                before = after
                print(f"{name:<8}LoRA {lora:7.0f} ms a step, share {shares[name][-1]:.3f} of sgemm {after:6.1f} GFLOP/s; LoKr "
                      f"{lokr:7.0f} ms, {ratios[name][-1]:.3f} x the speed", flush=True)
    result = {"shape": arguments.shape, "layers": arguments.layers, "tokens": arguments.tokens, "operationsOfStep": operations,
              "sgemmGflops": statistics.median(blas),
              "models": {name: {"loraMs": statistics.median(lora_ms[name]), "share": statistics.median(shares[name]),
                                "lokrOverLora": statistics.median(ratios[name])} for name in models}}
    print(f"\n{arguments.shape}, {arguments.layers} layers, {arguments.tokens} tokens: {operations / 1e9:.0f} G operations a step, "
          f"sgemm {result['sgemmGflops']:.1f} GFLOP/s")
    for name, row in result["models"].items():
        print(f"{name:<8}{row['loraMs']:7.0f} ms a step, {row['share']:.3f} x sgemm; LoKr {row['lokrOverLora']:.3f} x the speed of LoRA")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
