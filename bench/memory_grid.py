#!/usr/bin/env python3
"""Compares what patina train-lm takes of anonymous memory with what it planned, over contexts and ranks, on a real model.

Each run takes two steps on sequences as long as the context and then exports; /proc is polled all the while, so the peak is that
of the whole process. After the grid come runs with what takes memory of its own: Muon, LoKr under Muon, samples. Prints a table in MB and exits 1 where a peak is off by more than 3 % or 16 MB, whichever is more.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARE, BYTES = 0.03, 16e6
POLL_SECONDS = 0.005


def anonymous_bytes(process):
    """RssAnon of a process, 0 when it is gone."""
    try:
        status = pathlib.Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(found[0]) * 1024 if found else 0


def measure(patina, model, directory, context, rank, flags):
    """Runs two steps. The events by name, the greatest RssAnon, and the file pages after the first step."""
    text = pathlib.Path(directory) / "text.txt"
    text.write_text(" ".join(str(i * 7919 % 1000) for i in range(3 * context)))  # more than two sequences
    prompts = pathlib.Path(directory) / "prompts.jsonl"
    prompts.write_text(PROMPTS)
    out = pathlib.Path(directory) / "adapter"
    events_file = pathlib.Path(directory) / "events.jsonl"
    command = [patina, "train-lm", "--model", model, "--data", text, "--out", out, "--overwrite", "--jsonl", "--steps", "2",
               "--context", str(context), "--batch-tokens", str(context), *([] if "lokr" in flags else ["--rank", str(rank)]),
               *(flag.format(prompts=prompts) for flag in flags)]
    with events_file.open("w") as events, (pathlib.Path(directory) / "errors.txt").open("w+") as errors:
        process = subprocess.Popen(list(map(str, command)), stdout=events, stderr=errors)
        peak = 0
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(POLL_SECONDS)
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"memory_grid.py: {' '.join(map(str, command))} failed:\n{errors.read()}")
    by_name = {}
    for line in events_file.read_text().splitlines():
        event = json.loads(line)
        by_name.setdefault(event["event"], event)  # the first step's
    return by_name, peak


PROMPTS = "".join(json.dumps({"prompt": f"What is number {i}?"}) + "\n" for i in range(3))
# Context, rank, flags; {prompts} is a file.
BESIDE_THE_GRID = [
    (128, 16, ["--optimizer", "muon"]),
    (128, 64, ["--optimizer", "muon"]),
    (128, 256, ["--optimizer", "muon", "--threads", "4"]),
    (128, 16, ["--optimizer", "muon", "--adapter-type", "lokr", "--lokr-dim", "10000", "--threads", "4"]),
    (512, 16, ["--sample-prompts", "{prompts}", "--sample-tokens", "200"]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patina", default=ROOT / "build/src/patina")
    parser.add_argument("--model", default=ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--contexts", default="128,512,2048")
    parser.add_argument("--ranks", default="4,16,64")
    parser.add_argument("flags", nargs="*", help="more flags for train-lm, after --")
    arguments = parser.parse_args()
    print(f"{'context':>8}{'rank':>6}{'weights':>9}{'planned':>9}{'step 1':>9}{'peak':>9}{'off':>8}{'file pages':>12}   MB")
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        grid = [(context, rank, []) for context in map(int, arguments.contexts.split(",")) for rank in map(int, arguments.ranks.split(","))]
        for context, rank, flags in grid + BESIDE_THE_GRID:
            events, peak = measure(arguments.patina, arguments.model, directory, context, rank, [*flags, *arguments.flags])
            memory, step = events["memory"], events["step"]
            planned = memory["planned"] - memory["weights"]
            file_pages = step["residentBytes"] - step["anonymousBytes"]
            off = peak - planned
            wrong = abs(off) > max(SHARE * planned, BYTES)
            missed += wrong
            figures = [memory["weights"], planned, step["anonymousBytes"], peak]
            print(f"{context:>8}{rank:>6}" + "".join(f"{figure / 1e6:>9.1f}" for figure in figures) +
                  f"{off / 1e6:>+8.1f}{file_pages / 1e6:>12.1f}  {' '.join(flags)}" + ("   missed" if wrong else ""), flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
