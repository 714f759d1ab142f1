#!/usr/bin/env python3
"""Measures train-lm --weights stream beside mapped: time of a step, pages of the model's file that are resident, adapter bytes.

usage: bench/streaming.py MODEL.gguf [--context 256] [--steps 3] [--rounds 1] [--drop] [--patina build/src/patina]

Runs both by turns on the same data and prints medians as JSON. Resident pages are the most that /proc/PID/smaps shows for the map
of the file, sampled every 20 ms from the first step on. With --drop, another run streams while the file's pages that nobody has
mapped are dropped from the page cache all the time (POSIX_FADV_DONTNEED), as on a machine whose memory is full; it tells what was
read from the disk. --drop drops the model's pages for everyone.
Model: tools/make_random_model.py writes the shape of one.
"""
import argparse
import filecmp
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLE_SECONDS = 0.02


def resident_bytes(pid, model):
    """Of the file's map, from smaps: the Rss line after each mapping of it."""
    total, inside = 0, False
    try:
        with open(f"/proc/{pid}/smaps") as smaps:
            for line in smaps:
                if "-" in line.split(" ", 1)[0]:
                    inside = line.rstrip().endswith(model)
                elif inside and line.startswith("Rss:"):
                    total += int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total


def read_bytes(pid):
    try:
        with open(f"/proc/{pid}/io") as io:
            return int(next(line for line in io if line.startswith("read_bytes:")).split()[1])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


def run(args, how, drop, data, out):
    model = os.path.realpath(args.model)
    command = [args.patina, "train-lm", "--model", model, "--data", data, "--out", out, "--weights", how, "--jsonl"]
    command += ["--context", str(args.context), "--batch-tokens", str(args.context), "--steps", str(args.steps)]
    descriptor = os.open(model, os.O_RDONLY)
    events, most, read_before, read_after = [], 0, None, 0
    with open(out + ".events", "w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.DEVNULL)
        with open(out + ".events") as follow:
            while process.poll() is None:
                events += [json.loads(line) for line in follow if line.endswith("\n")]
                if any(event["event"] == "memory" for event in events):
                    most = max(most, resident_bytes(process.pid, model))
                    read_before = read_before if read_before is not None else read_bytes(process.pid)
                    read_after = max(read_after, read_bytes(process.pid))
                if drop:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                time.sleep(SAMPLE_SECONDS)
            events += [json.loads(line) for line in follow if line.strip()]
    os.close(descriptor)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}; see {out}.events")
    steps = [event["ms"] for event in events if event["event"] == "step"]
    planned = next(event["weights"] for event in events if event["event"] == "memory")
    seconds = sum(steps) / 1e3
    result = {"weights": how, "dropped": drop, "msPerStep": statistics.median(steps), "residentFileBytes": most,
              "plannedFileBytes": planned, "residentShareOfFile": most / os.path.getsize(model)}
    if drop:
        result["readBytes"] = read_after - (read_before or 0)
        result["readMBPerSecond"] = result["readBytes"] / 1e6 / seconds
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--drop", action="store_true")
    parser.add_argument("--patina", default=str(ROOT / "build/src/patina"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data = os.path.join(directory, "data.txt")
        characters = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0x100))]  # lookups all over the embedding
        text = "".join(random.Random(1).choices(characters, k=2 * args.context * args.steps))
        pathlib.Path(data).write_text(text, encoding="utf-8")
        results = []
        for turn in range(args.rounds):
            for how in ("mapped", "stream"):
                results.append(run(args, how, False, data, os.path.join(directory, f"{how}{turn}")))
        if args.drop:
            results.append(run(args, "stream", True, data, os.path.join(directory, "dropped")))
        name = "adapter_model.safetensors"
        first = os.path.join(directory, "mapped0", name)
        others = [path for path in pathlib.Path(directory).glob(f"*/{name}")]
        equal = all(filecmp.cmp(first, other, shallow=False) for other in others)
    median = lambda how: statistics.median(r["msPerStep"] for r in results if r["weights"] == how and not r["dropped"])
    print(json.dumps({"model": os.path.basename(args.model), "fileBytes": os.path.getsize(args.model),
                      "context": args.context, "steps": args.steps, "runs": results,
                      "streamOfMapped": median("stream") / median("mapped"), "sameAdapters": equal}, indent=2))


if __name__ == "__main__":
    main()
