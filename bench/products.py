#!/usr/bin/env python3
"""Measures the frozen products against the floors that Patina claims, on a quiet machine. About half an hour on two cores.

Runs patina gemmbench (which holds the lock of benchmarks) for Qwen3-4B and SmolLM2-135M, writes bench/results/, prints each
layer sum beside its floor, and exits 1 where one is missed. Refuses on a busy machine.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
SHAPES = ["qwen3-4b", "smollm2-135m"]
TOKENS = [128, 512, 2048]
# Floors of a layer sum in units of sgemm's speed. T = 128 has floors of its own, for some types.
FLOORS = {
    **dict.fromkeys(["F32", "F16", "BF16"], 0.95),
    **dict.fromkeys(["Q8_0", "Q4_0", "Q4_K", "Q6_K"], 0.92),
    **dict.fromkeys(["Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "IQ4_NL", "IQ4_XS", "MXFP4"], 0.85),
}
FEW_TOKENS = 128
FEW_TOKENS_FLOORS = dict.fromkeys(["BF16", "Q8_0", "Q4_K"], 0.85)
BACKWARD_OF_FORWARD = 0.93  # speed of backward in units of forward's, same type


def gemmbench(patina, name, shape, *flags):
    """Runs the command; its JSON."""
    file = RESULTS / f"{name}.json"
    # Both name kernels of OpenBLAS for other processors than this one.
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    command = [patina, "gemmbench", "--model-shape", shape, "--formulations", "fused", "--json", str(file), *flags]
    print("+", " ".join(command), flush=True)
    if subprocess.run(command, env=environment).returncode != 0:
        sys.exit(f"products.py: gemmbench failed for {shape}")
    return json.loads(file.read_text())


def refuse_busy(result):
    machine = result["machine"]
    if machine["busy"]:
        cores = max(machine["otherCoresBefore"], machine["otherCores"])
        sys.exit(f"products.py: other processes keep {cores:.1f} cores busy; run it on a quiet machine")


def floor_of(total):
    if total["t"] == FEW_TOKENS:
        return FEW_TOKENS_FLOORS.get(total["type"])
    return FLOORS[total["type"]]


def check_floors(shape, result):
    """Prints a line for each sum; how many miss a floor."""
    missed = 0
    for total in result["layerSums"]:
        floor = floor_of(total)
        forward, backward = total["forwardRatio"], total["backwardRatio"]
        relative = total["forwardMs"] / total["backwardMs"]
        faults = []
        if total["invalid"]:
            faults.append("invalid")
        if floor and min(forward, backward) < floor:
            faults.append(f"below {floor}")
        if relative < BACKWARD_OF_FORWARD:
            faults.append(f"backward below {BACKWARD_OF_FORWARD} of forward")
        missed += bool(faults)
        print(f"{shape:<14}{total['t']:>5} {total['type']:<8}{forward:>8.3f}{backward:>9.3f}{relative:>9.3f}"
              f"{floor or '-':>7}  {', '.join(faults) or 'ok'}")
    return missed


def print_scaling(patina, threads):
    """Speed with all threads in units of one thread's, ours and OpenBLAS's."""
    flags = ["--seq", "512", "--types", "BF16,Q4_K", "--threads"]
    one = gemmbench(patina, "scaling-1", "qwen3-4b", *flags, "1")
    many = gemmbench(patina, f"scaling-{threads}", "qwen3-4b", *flags, str(threads))
    print(f"\nspeed on {threads} threads in units of one thread's, qwen3-4b, T = 512")
    for a, b in zip(one["layerSums"], many["layerSums"]):
        for direction in ("forward", "backward"):
            sgemm = "sgemm" + direction.capitalize() + "Ms"
            ours, theirs = a[direction + "Ms"] / b[direction + "Ms"], a[sgemm] / b[sgemm]
            print(f"{a['type']:<6}{direction:<10}{ours:>6.2f}   sgemm {theirs:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patina", default=str(ROOT / "build/src/patina"), help="the program to measure")
    parser.add_argument("--types", default=",".join(FLOORS), help="types of the weights (default: all)")
    parser.add_argument("--seq", default=",".join(map(str, TOKENS)), help="tokens (default: %(default)s)")
    parser.add_argument("--reps", default="5", help="rounds (default: %(default)s)")
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    probe = gemmbench(arguments.patina, "probe", "256x256", "--seq", "64", "--types", "F32", "--reps", "1")
    refuse_busy(probe)
    if probe["machine"]["openblas"] is None:
        sys.exit("products.py: floors are ratios to OpenBLAS; install libopenblas0-pthread")
    flags = ["--types", arguments.types, "--seq", arguments.seq, "--reps", arguments.reps]
    results = {shape: gemmbench(arguments.patina, shape, shape, *flags) for shape in SHAPES}
    print("\nlayer sums of fused, x sgemm")
    print(f"{'shape':<14}{'T':>5} {'type':<8}{'forward':>8}{'backward':>9}{'b / f':>9}{'floor':>7}")
    missed = sum(check_floors(shape, result) for shape, result in results.items())
    threads = probe["machine"]["threads"]
    if threads > 1:
        print_scaling(arguments.patina, threads)
    for result in results.values():
        refuse_busy(result)
    print(f"\n{missed} sums miss a floor")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
