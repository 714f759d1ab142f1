#!/usr/bin/env python3
"""Trains LoRA and LoKr of a small random diffusion transformer on structured songs, which must be learnt, and on the same songs with
their frames shuffled, which must not. Prints the last loss over the first (means of five epochs against the first epoch) and exits 1
where one is on the wrong side of its bar.

usage: tools/check_dit_learning.py [--patina build/src/patina] [--epochs 600]

Takes about fifteen minutes on two quiet cores. Needs what make_dit_data.py needs. The training sees t between 0.3 and 0.6, where what can be
told from the neighbours of a frame counts most.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent
LEARNT, NOT_LEARNT = 0.15, 0.5
KINDS = {"LoRA": ["--rank", "128", "--alpha", "128", "--lr", "2e-3"],
         "LoKr": ["--adapter-type", "lokr", "--lokr-dim", "512", "--lokr-alpha", "512", "--lokr-factor", "2", "--lr", "5e-3"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patina", default=str(TOOLS.parent / "build/src/patina"))
    parser.add_argument("--epochs", type=int, default=600)
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        make = [sys.executable, TOOLS / "make_dit_data.py"]
        songs = ["--shape", "tiny", "--seconds", "160", "--songs", "16"]
        subprocess.run([*make, "model", place / "model.safetensors", "--shape", "tiny", "--type", "f32"], check=True)
        subprocess.run([*make, "songs", place / "structured", *songs], check=True)
        subprocess.run([*make, "songs", place / "shuffled", *songs, "--shuffled"], check=True)
        for data in ("structured", "shuffled"):
            for kind, flags in KINDS.items():
                lines = subprocess.run(
                    [args.patina, "train-dit", "--model", place / "model.safetensors", "--data", place / data, "--out", place / "out",
                     "--overwrite", "--jsonl", "--epochs", str(args.epochs), "--crop", "500", "--grad-accum", "3", "--t-min", "0.3",
                     "--t-max", "0.6", "--cfg-ratio", "0", "--target-loss", "0", "--milestone-step", "0", *flags],
                    check=True, capture_output=True, text=True).stdout.splitlines()
                losses = [event["loss"] for event in map(json.loads, lines) if event["event"] == "epoch"]
                ratio = sum(losses[-5:]) / 5 / losses[0]
                good = ratio <= LEARNT if data == "structured" else ratio >= NOT_LEARNT
                failed |= not good
                bar = f"at most {LEARNT}" if data == "structured" else f"at least {NOT_LEARNT}"
                print(f"{kind} on {data} songs: loss {losses[0]:.3f} to {ratio:.3f} of it ({bar}): {'pass' if good else 'FAIL'}", flush=True)
    sys.exit(failed)


main()
