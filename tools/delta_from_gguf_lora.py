#!/usr/bin/env python3
"""Computes the weight change that a llama.cpp GGUF LoRA stands for, with numpy alone: delta W = alpha / r * B A for each weight.

usage: delta_from_gguf_lora.py ADAPTER.gguf [--hf MODEL.gguf] [--out DELTAS.npz] [--against DELTAS.npz]

As llama.cpp does, alpha is adapter.lora.alpha, 0 means scale 1, and r is the number of columns of B. Weights carry their GGUF
names and row order, such as blk.0.attn_q.weight. --hf gives them their Hugging Face names and row order (the llama architecture
stores the rows of q and k with the halves of each head interleaved; MODEL tells the number of heads), so that --against can
compare with what delta_from_peft.py saved. Output and the other options are as there.
Tested with Python 3.11, numpy 2.4, gguf 0.19.0.
"""
import re
import sys

import numpy as np
from gguf import GGUFReader

from delta_from_peft import arguments, report
from make_f32_copy import to_f32

MODULES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
           "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def read_gguf_lora(path):
    """Returns {weight: (A [r, K], B [N, r], scale)}."""
    reader = GGUFReader(path)
    for key, expected in (("general.type", "adapter"), ("adapter.type", "lora")):
        found = reader.fields[key].contents() if key in reader.fields else None
        if found != expected:
            sys.exit(f"{path}: {key} should be {expected!r}, is {found!r}")
    alpha = float(reader.fields["adapter.lora.alpha"].contents())
    halves = {}
    for tensor in reader.tensors:
        match = re.fullmatch(r"(.+\.weight)\.lora_([ab])", tensor.name)
        if not match or match[1] == "token_embd.weight":
            sys.exit(f"{path}: tensor {tensor.name} is not half of a LoRA on a matrix")
        halves.setdefault(match[1], {})[match[2]] = to_f32(tensor).astype(np.float64)
    for name, half in halves.items():
        if set(half) != {"a", "b"} or half["a"].shape[0] != half["b"].shape[1]:
            sys.exit(f"{path}: {name} has halves {({h: half[h].shape for h in half})}")
    return {name: (h["a"], h["b"], alpha / h["b"].shape[1] if alpha else 1.0) for name, h in halves.items()}


def in_hugging_face_order(weights, model):
    fields = GGUFReader(model).fields
    arch = fields["general.architecture"].contents()
    heads = {site: int(fields[f"{arch}.attention.{key}"].contents())
             for site, key in (("attn_q", "head_count"), ("attn_k", "head_count_kv"))}
    modules = {}
    for name, (a, b, scale) in weights.items():
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
        if not match and name != "output.weight" or match and match[2] not in MODULES:
            sys.exit(f"{name} has no Hugging Face name here")
        if match and arch == "llama" and match[2] in heads:
            b = b.reshape(heads[match[2]], -1, 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
        modules[f"model.layers.{match[1]}.{MODULES[match[2]]}" if match else "lm_head"] = (a, b, scale)
    return modules


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("adapter")
    parser.add_argument("--hf", metavar="MODEL.gguf")
    args = parser.parse_args()
    weights = read_gguf_lora(args.adapter)
    report(in_hugging_face_order(weights, args.hf) if args.hf else weights, args.out, args.against)
