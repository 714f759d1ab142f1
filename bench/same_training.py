#!/usr/bin/env python3
"""Trains the same LoRA with PEFT and with Patina, from the same A, on the same batches, and compares the two loss curves.

usage: bench/same_training.py MODEL.gguf TEXT.txt [--steps 200] [--rate 1e-4] [--limit 1e-3] [--json FILE]

PEFT trains the dequantised F32 model in PyTorch; Patina goes on (--init-adapter) from the adapter that PEFT began with. A step is one
sequence. Each of the 50 sequences has a length of its own, so that Patina's events tell in which order they came: PEFT follows it.
AdamW, constant rate, no clipping, rank 16 on all seven linear layers of every block. Exits 1 where a loss differs by more than the limit.
Tested with Python 3.11, torch 2.15.0, transformers 5.24.0, peft 0.21.2.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers

from peer_peft import load

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTHS = range(50, 100)  # two of them are longer than the longest: a step of 99 tokens holds one
DECAY = 0.01


def samples(tokenizer, text):
    """Pieces of the text, by their number of tokens: each is read back as the same tokens."""
    ids, at, pieces = tokenizer(text)["input_ids"], 0, {}
    for length in LENGTHS:
        while (piece := ids[at:at + length]) != tokenizer(tokenizer.decode(piece))["input_ids"]:
            at += 1
        if len(piece) < length:
            sys.exit(f"same_training.py: the text is too short: {len(ids)} tokens")
        pieces[length] = piece
        at += length
    return pieces


def train_patina(arguments, data, initial, out):
    """(tokens, loss) of each step."""
    command = [arguments.patina, "train-lm", "--model", arguments.model, "--data", data, "--init-adapter", initial, "--out", out,
               "--context", LENGTHS[-1], "--batch-tokens", LENGTHS[-1], "--steps", arguments.steps, "--lr", arguments.rate,
               "--schedule", "constant", "--warmup", 0, "--grad-clip", 0, "--weight-decay", DECAY, "--jsonl"]
    run = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return [(event["tokens"], event["loss"]) for event in map(json.loads, run.stdout.splitlines()) if event["event"] == "step"]


def train_peft(model, pieces, order, rate):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=DECAY)
    losses = []
    for length in order:
        ids = torch.tensor([pieces[length]])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--limit", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--patina", default=ROOT / "build/src/patina")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    base, tokenizer = load(arguments.model, torch.float32)
    sites = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules=sites))
    pieces = samples(tokenizer, arguments.text.read_text())
    with tempfile.TemporaryDirectory() as directory:
        data, initial = pathlib.Path(directory) / "data.jsonl", pathlib.Path(directory) / "initial"
        data.write_text("".join(json.dumps({"text": tokenizer.decode(piece)}) + "\n" for piece in pieces.values()))
        model.save_pretrained(initial)
        steps = train_patina(arguments, data, initial, pathlib.Path(directory) / "out")
    ours = [loss for _, loss in steps]
    theirs = train_peft(model, pieces, [tokens for tokens, _ in steps], arguments.rate)
    differences = [abs(a - b) for a, b in zip(ours, theirs)]
    largest = max(differences)
    print(f"{len(steps)} steps, loss {ours[0]:.4f} to {ours[-1]:.4f} (PEFT {theirs[0]:.4f} to {theirs[-1]:.4f}); differences: "
          f"largest {largest:.2e} at step {differences.index(largest) + 1}, mean {sum(differences) / len(differences):.2e}")
    print(f"PyTorch {torch.__version__}, PEFT {peft.__version__}, transformers {transformers.__version__}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"patina": ours, "peft": theirs}, indent=1) + "\n")
    sys.exit(0 if len(steps) == arguments.steps and largest <= arguments.limit else 1)


if __name__ == "__main__":
    main()
