#!/usr/bin/env python3
"""Measures Patina's gradient of a frozen product beside ggml's, in one run on a quiet machine. A few minutes on two cores.

Rounds of both programs take turns: `patina gemmbench` (fused) and integrations/ggml/bench/products (ggml's outer product, and the
product form of the change), on the same shapes with the same threads. Prints medians and ratios, writes bench/results/. Needs
ggml, built by scripts/fetch-ggml.sh and scripts/bench-ggml.sh --quick; without it this is skipped, and says so.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
SHAPES = [(2560, 4096), (2560, 9728), (9728, 2560)]  # K, N: q, gate and up, down of Qwen3-4B
TYPES = {"F32": "f32", "BF16": "bf16", "F16": "f16", "Q8_0": "q8_0", "Q4_0": "q4_0", "Q4_K": "q4_K"}
ROUNDS = 5


def clean_environment(**more):
    dropped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "GGML_BACKWARD_MM", "GGML_BACKWARD_MM_SCOPE")
    return {**{key: value for key, value in os.environ.items() if key not in dropped}, **more}


def ours(patina, k, n, tokens, kind, threads):
    """Milliseconds of the backward product; exits where the machine is busy."""
    file = RESULTS / "ggml_compare.gemmbench.json"
    command = [patina, "gemmbench", "--model-shape", f"{k}x{n}", "--seq", str(tokens), "--types", kind]
    command += ["--formulations", "fused", "--reps", "1", "--threads", str(threads), "--json", str(file)]
    subprocess.run(command, env=clean_environment(), check=True, stdout=subprocess.DEVNULL)
    result = json.loads(file.read_text())
    if result["machine"]["busy"]:
        sys.exit("ggml_compare.py: other processes keep this machine busy; run it on a quiet one")
    rows = [row for row in result["rows"] if row["direction"] == "backward" and row["formulation"] == "fused"]
    return rows[0]["ms"], result["machine"]


def theirs(folder, k, n, tokens, kind, threads):
    """Milliseconds of each way of ggml's; None where it has no such product."""
    library = str(folder / "changed")
    command = [folder / "build/bin/products", k, n, tokens, 1, threads, "cpu", TYPES[kind]]
    done = subprocess.run(
        list(map(str, command)), env=clean_environment(LD_LIBRARY_PATH=library), check=True, stdout=subprocess.PIPE, text=True
    )
    return {row["way"]: row["ms"] for row in map(json.loads, done.stdout.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patina", default=str(ROOT / "build/src/patina"))
    parser.add_argument("--types", default="F32,BF16,Q8_0", help=f"of {', '.join(TYPES)}")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    kinds = arguments.types.split(",")
    if unknown := [kind for kind in kinds if kind not in TYPES]:
        parser.error(f"--types: {', '.join(unknown)} is none of {', '.join(TYPES)}")

    found = sorted(ROOT.glob("build-ggml/*/build/bin/products"))
    if not found:
        print("ggml_compare: skipped: no ggml in build-ggml/; scripts/bench-ggml.sh --quick fetches and builds it")
        return
    folder = found[-1].parent.parent.parent
    RESULTS.mkdir(exist_ok=True)
    rows = []
    print(f"backward, ms; medians of {arguments.rounds} rounds, {arguments.threads} threads, T = {arguments.tokens}")
    print(f"{'K x N':>12} {'type':>5} {'Patina':>9} {'ggml product':>13} {'x':>6} {'ggml outer product':>19} {'x':>6}")
    for k, n in SHAPES:
        for kind in kinds:
            own, other = [], {"product": [], "outprod": []}
            for _ in range(arguments.rounds):
                ms, machine = ours(arguments.patina, k, n, arguments.tokens, kind, arguments.threads)
                own.append(ms)
                ways = theirs(folder, k, n, arguments.tokens, kind, arguments.threads)
                for way, list_of_ms in other.items():
                    if ways[way] is not None:
                        list_of_ms.append(ways[way])
            medians = {way: statistics.median(values) if values else None for way, values in other.items()}
            row = {"k": k, "n": n, "t": arguments.tokens, "type": kind, "patinaMs": statistics.median(own)}
            row.update(ggmlProductMs=medians["product"], ggmlOuterProductMs=medians["outprod"])
            rows.append(row)
            cells = [f"{row['patinaMs']:9.1f}"]
            for way, width in (("product", 13), ("outprod", 19)):
                ms = medians[way]
                cells.append("-".rjust(width) + "-".rjust(7) if ms is None else f"{ms:{width}.1f} {ms / row['patinaMs']:6.1f}")
            print(f"{k:>6} x {n:<4}{kind:>5} {cells[0]} {cells[1]} {cells[2]}", flush=True)
    result = {"ggml": folder.name, "machine": machine, "rows": rows}
    (RESULTS / "ggml_compare.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
