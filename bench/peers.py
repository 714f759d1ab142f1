#!/usr/bin/env python3
"""Measures tokens a second and peak resident memory of Patina beside other trainers: the same model, data, rank and context.

usage: bench/peers.py NAME=MODEL.gguf ... [--venvs DIR] [--rounds 3] [--json FILE]

Every trainer takes LoRA steps of rank 16 on all seven linear layers of each block, one sequence of 512 tokens a step, all of them
supervised. Patina trains each MODEL; the peers, which read no quantised base on a CPU, train the dequantised weights of the first.
All take turns, --rounds times; the first step of each run is not counted. Medians are printed as JSON (--json) and as the table that
README.md shows. The peers are installed from PyPI into DIR (default build/peers, some 8 GB) where they are not there; one that cannot
be installed is named and left out.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTEXT, RANK = 512, 16
PEFT, MLX = "peft", "mlx"
PACKAGES = {PEFT: ["torch", "transformers", "accelerate", "peft", "gguf"], MLX: ["mlx[cpu]", "mlx-lm"]}


def install(venvs, peer):
    """The python of a peer's environment, None where it cannot be had."""
    python = venvs / peer / "bin/python"
    if python.exists():
        return python
    print(f"installing {', '.join(PACKAGES[peer])}", file=sys.stderr)
    for command in ([sys.executable, "-m", "venv", venvs / peer], [python, "-m", "pip", "install", "-q", *PACKAGES[peer]]):
        if subprocess.run(list(map(str, command))).returncode != 0:
            print(f"peers.py: {peer} cannot be installed here and is left out", file=sys.stderr)
            return None
    return python


def run(command):
    """Standard output of a process and its greatest resident memory."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            sys.exit(f"peers.py: {' '.join(map(str, command))} failed:\n{errors.read()[-2000:]}")
        return out.read(), usage.ru_maxrss * 1024


class Patina:
    def __init__(self, name, model, arguments, directory):
        self.name, self.base, self.versions = "Patina", name, "Patina"
        self.command = [arguments.patina, "train-lm", "--model", model, "--data", directory / "text.txt", "--out",
                        directory / "adapter", "--overwrite", "--jsonl", "--loss-on", "all", "--context", CONTEXT,
                        "--batch-tokens", CONTEXT, "--rank", RANK, "--steps", arguments.steps + 1, "--threads", arguments.threads,
                        *arguments.flags]

    def measure(self):
        out, peak = run(self.command)
        events = [json.loads(line) for line in out.splitlines()]
        self.versions = "Patina " + events[0]["version"]
        # The last sequence of the text may be a short one.
        return [event["ms"] * CONTEXT / event["tokens"] for event in events if event["event"] == "step"][1:], peak


class Peer:
    def __init__(self, name, base, command):
        self.name, self.base, self.command, self.versions = name, base, command, name

    def measure(self):
        out, peak = run(self.command)
        result = json.loads(out.splitlines()[-1])
        self.versions = result["versions"]
        return result["milliseconds"][1:], peak


def contestants(arguments, directory):
    models = [model.split("=", 1) for model in arguments.models]
    found = [Patina(name, model, arguments, directory) for name, model in models]
    name, model = models[0]
    common = [directory / "text.txt", "--context", CONTEXT, "--rank", RANK, "--steps", arguments.steps + 1]
    peft = install(arguments.venvs, PEFT)
    if peft is None:
        return found
    script = ROOT / "bench/peer_peft.py"
    for base, dtype in (("F32", "float32"), ("BF16", "bfloat16")):
        found.append(Peer("PyTorch + PEFT", base, [peft, script, model, *common, "--type", dtype, "--threads", arguments.threads]))
    mlx = install(arguments.venvs, MLX)
    if mlx is not None:
        run([peft, script, "save", model, directory / "model"])
        found.append(Peer("MLX", "F32", [mlx, ROOT / "bench/peer_mlx.py", directory / "model", *common]))
    return found


def processor():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), platform.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "build/peers")
    parser.add_argument("--patina", default=ROOT / "build/src/patina")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="measured in a round (default: 2)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--flags", type=str.split, default=[], help="more flags for patina, as one argument")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        # Every number is several tokens: more than all steps take.
        (directory / "text.txt").write_text(" ".join(str(i * 7919 % 100000) for i in range((arguments.steps + 2) * CONTEXT)))
        rows = [(trainer, [], []) for trainer in contestants(arguments, directory)]
        for _ in range(arguments.rounds):
            for trainer, milliseconds, peaks in rows:
                steps, peak = trainer.measure()
                milliseconds += steps
                peaks.append(peak)
                print(f"{trainer.name} {trainer.base}: {CONTEXT * 1e3 / statistics.median(steps):.1f} tokens/s, {peak / 1e6:.0f} MB",
                      file=sys.stderr, flush=True)
    result = {"machine": f"{processor()}, {arguments.threads} threads", "versions": sorted({trainer.versions for trainer, _, _ in rows}),
              "context": CONTEXT, "rank": RANK, "rounds": arguments.rounds,
              "rows": [{"trainer": trainer.name, "base": trainer.base, "tokensPerSecond": CONTEXT * 1e3 / statistics.median(milliseconds),
                        "peakBytes": max(peaks)} for trainer, milliseconds, peaks in rows]}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print("| trainer | base | tokens a second | peak resident |\n|---|---|---|---|")
    for row in result["rows"]:
        print(f"| {row['trainer']} | {row['base']} | {row['tokensPerSecond']:.1f} | {row['peakBytes'] / 1e6:.0f} MB |")
    print(f"\n{result['machine']}; {', '.join(result['versions'])}.")


if __name__ == "__main__":
    main()
