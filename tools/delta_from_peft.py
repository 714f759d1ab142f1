#!/usr/bin/env python3
"""Computes the weight change that a PEFT LoRA folder stands for, with numpy alone: delta W = scale * B A for each module.

usage: delta_from_peft.py FOLDER [--out DELTAS.npz] [--against DELTAS.npz]

FOLDER has adapter_config.json and adapter_model.safetensors. scale = alpha / r, or alpha / sqrt(r) with use_rslora; alpha_pattern
and rank_pattern are heeded (a key matches a module's name as a regular expression at its end, the first match wins). Modules carry
their Hugging Face names, such as model.layers.0.self_attn.q_proj. DoRA, LoRA on embeddings, biases and saved modules are refused: a
product of two matrices does not describe them. Prints shape, rank, scale and norm of each module. --out saves the deltas (double
precision, one array a module); --against compares them with saved ones: it prints max |difference| / max |delta| and exits 1 where
names or shapes differ or that ratio is above 1e-6. F32 or F16 tensors.
Tested with Python 3.11, numpy 2.4, safetensors 0.8.0.
"""
import argparse
import json
import math
import os
import re
import sys

import numpy as np

NOT_PLAIN = {"use_dora": False, "fan_in_fan_out": False, "lora_bias": False, "bias": "none"}


def read_peft(folder):
    """Returns {module: (A [r, K], B [N, r], scale)}."""
    from safetensors.numpy import load_file

    with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    for key, plain in NOT_PLAIN.items():
        if config.get(key, plain) not in (plain, None):
            sys.exit(f"{folder}: {key} = {config[key]!r} is not a plain LoRA")
    halves = {}
    for name, data in load_file(os.path.join(folder, "adapter_model.safetensors")).items():
        match = re.fullmatch(r"base_model\.model\.(.+)\.lora_([AB])\.weight", name)
        if not match:
            sys.exit(f"{folder}: tensor {name} is neither a lora_A nor a lora_B weight")
        halves.setdefault(match[1], {})[match[2]] = data.astype(np.float64)

    def setting(pattern, module, default):
        hits = (value for key, value in (config.get(pattern) or {}).items() if re.match(rf"(.*\.)?({key})$", module))
        return next(hits, default)

    modules = {}
    for module, half in sorted(halves.items()):
        if set(half) != {"A", "B"}:
            sys.exit(f"{folder}: {module} lacks one of lora_A and lora_B")
        rank = setting("rank_pattern", module, config["r"])
        alpha = setting("alpha_pattern", module, config["lora_alpha"])
        if half["A"].shape[0] != rank or half["B"].shape[1] != rank:
            sys.exit(f"{folder}: {module} should have rank {rank}, has {half['A'].shape} and {half['B'].shape}")
        modules[module] = (half["A"], half["B"], alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))
    return modules


def report(modules, out, against):
    deltas = {}
    for name, (a, b, scale) in modules.items():
        deltas[name] = scale * (b @ a)
        print(f"{name}  {deltas[name].shape}  rank {a.shape[0]}  scale {scale:g}  norm {np.linalg.norm(deltas[name]):.6g}")
    if out:
        np.savez(out, **deltas)
    if against:
        other = np.load(against)
        if sorted(other.files) != sorted(deltas):
            sys.exit(f"modules differ from {against}: {sorted(set(other.files) ^ set(deltas))[:4]} ...")
        worst = 0.0
        for name, delta in deltas.items():
            if delta.shape != other[name].shape:
                sys.exit(f"{name}: shape {delta.shape}, in {against} {other[name].shape}")
            worst = np.maximum(worst, np.abs(delta - other[name]).max() / max(np.abs(delta).max(), np.finfo(float).tiny))
        print(f"largest difference {worst:.3e}")
        if not worst <= 1e-6:
            sys.exit(1)


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    parser.add_argument("--against")
    return parser


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("folder")
    args = parser.parse_args()
    report(read_peft(args.folder), args.out, args.against)
