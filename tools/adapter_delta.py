#!/usr/bin/env python3
"""Computes the weight changes that adapters stand for, by each format's own rules and with numpy alone, and compares them.

usage: adapter_delta.py ADAPTER [--model MODEL.gguf] [--against ADAPTER] [--tolerance 1e-6]

ADAPTER is a PEFT directory (LoRA, rsLoRA, DoRA, LoKr), an MLX directory (LoRA, DoRA), a LyCORIS or kohya .safetensors file
(LoRA, DoRA, LoKr) or a llama.cpp GGUF LoRA. Prints the shape and the norm of the change of each module. With --against, prints
the largest difference of two adapters as a part of the largest change of its module, and exits 1 where names or shapes differ or
it is above --tolerance. MODEL is needed for DoRA, whose change depends on the weight, and for the row order of q and k in GGUF
adapters of the llama architecture. Shares no code with Patina.
Tested with Python 3.11, numpy 2.4, safetensors 0.8.0, gguf 0.19.0.
"""
import argparse
import json
import math
import os
import re
import sys

import numpy as np

MODULES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
           "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
PREFIXES = ("lycoris_", "lora_unet_", "lora_te1_", "lora_te_")


def load_safetensors(path):
    """Every tensor in double precision. BF16, which numpy lacks, is widened by hand."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        raw = data[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
        tensors[name] = values.astype(np.float64).reshape(entry["shape"])
    return tensors


def group(tensors, pattern):
    """{module: {part: tensor}} for names that match `pattern`, which has the groups module and part."""
    modules = {}
    for name, values in tensors.items():
        match = re.fullmatch(pattern, name)
        if not match:
            sys.exit(f"tensor {name} is not expected")
        modules.setdefault(match["module"], {})[match["part"]] = values
    return modules


class Weights:
    """W by Hugging Face's names and row order, from a GGUF model."""

    def __init__(self, path):
        from gguf import GGUFReader
        self.tensors, self.heads = {}, {}
        if path is None:
            return
        reader = GGUFReader(path)
        self.architecture = reader.fields["general.architecture"].contents()
        for site, key in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
            self.heads[site] = int(reader.fields[f"{self.architecture}.attention.{key}"].contents())
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def rows_of(self, name, matrix):
        """Rows of a GGUF matrix in Hugging Face order: llama files hold the halves of each head interleaved."""
        if not self.heads:
            sys.exit("--model is needed for the row order of GGUF adapters")
        site = name.split(".")[2] if name.startswith("blk.") else ""
        if self.architecture != "llama" or site not in self.heads:
            return matrix
        return matrix.reshape(self.heads[site], -1, 2, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)

    def weight(self, module):
        from gguf.quants import dequantize
        match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", module)
        name = f"blk.{match[1]}.{ {v: k for k, v in MODULES.items()}[match[2]]}.weight" if match else "output.weight"
        if name not in self.tensors:
            sys.exit(f"--model is needed for the weight of {module}")
        tensor = self.tensors[name]
        return self.rows_of(name, dequantize(tensor.data, tensor.tensor_type).astype(np.float64))


def with_magnitude(delta, magnitude, weight):
    adapted = weight + delta
    return magnitude.reshape(-1, 1) * adapted / np.linalg.norm(adapted, axis=1, keepdims=True) - weight


def lokr(parts):
    """w1, w2 and the dim of the low-rank ones (None: both whole)."""
    factors, dim = [], None
    for name in ("lokr_w1", "lokr_w2"):
        if name in parts:
            factors.append(parts[name])
        else:
            factors.append(parts[name + "_a"] @ parts[name + "_b"])
            dim = parts[name + "_b"].shape[0]
    return factors, dim


def read_peft(folder, weights):
    with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = load_safetensors(os.path.join(folder, "adapter_model.safetensors"))

    def setting(pattern, module, default):
        hits = (value for key, value in (config.get(pattern) or {}).items() if re.match(rf"(.*\.)?({key})$", module))
        return next(hits, default)

    deltas = {}
    for module, parts in group(tensors, r"base_model\.model\.(?P<module>.+)\.(?P<part>lora_[AB]\.weight|lora_magnitude_vector|lokr_\w+)").items():
        rank = setting("rank_pattern", module, config["r"])
        if config["peft_type"] == "LOKR":
            (w1, w2), _ = lokr(parts)
            deltas[module] = setting("alpha_pattern", module, config["alpha"]) / rank * np.kron(w1, w2)
            continue
        if parts["lora_A.weight"].shape[0] != rank:
            sys.exit(f"{module} should have rank {rank}")
        alpha = setting("alpha_pattern", module, config["lora_alpha"])
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
        deltas[module] = scale * (parts["lora_B.weight"] @ parts["lora_A.weight"])
        if config.get("use_dora"):
            deltas[module] = with_magnitude(deltas[module], parts["lora_magnitude_vector"], weights.weight(module))
    return deltas


def read_mlx(folder, weights):
    with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
        scale = json.load(file)["lora_parameters"]["scale"]
    tensors = load_safetensors(os.path.join(folder, "adapters.safetensors"))
    deltas = {}
    for module, parts in group(tensors, r"(?P<module>.+)\.(?P<part>lora_a|lora_b|m)").items():
        deltas[module] = scale * (parts["lora_b"].T @ parts["lora_a"].T)
        if "m" in parts:
            deltas[module] = with_magnitude(deltas[module], parts["m"], weights.weight(module))
    return deltas


def read_lycoris(path, weights):
    names = {f"model.layers.{n}.{m}".replace(".", "_"): f"model.layers.{n}.{m}" for n in range(512) for m in MODULES.values()}
    names["lm_head"] = "lm_head"
    deltas = {}
    for joined, parts in group(load_safetensors(path), r"(?P<module>[^.]+)\.(?P<part>.+)").items():
        prefix = next(prefix for prefix in PREFIXES if joined.startswith(prefix))
        module = names[joined.removeprefix(prefix)]
        if "lora_up.weight" in parts:
            up, down = parts["lora_up.weight"], parts["lora_down.weight"]
            deltas[module] = parts["alpha"].item() / down.shape[0] * (up @ down)
            if "dora_scale" in parts:
                deltas[module] = with_magnitude(deltas[module], parts["dora_scale"], weights.weight(module))
        else:
            (w1, w2), dim = lokr(parts)
            deltas[module] = (parts["alpha"].item() / dim if dim else 1.0) * np.kron(w1, w2)
    return deltas


def read_gguf(path, weights):
    from gguf import GGUFReader
    from gguf.quants import dequantize
    reader = GGUFReader(path)
    alpha = float(reader.fields["adapter.lora.alpha"].contents())
    tensors = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
    deltas = {}
    for name, parts in group(tensors, r"(?P<module>.+)\.weight\.(?P<part>lora_[ab])").items():
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)", name)
        module = f"model.layers.{match[1]}.{MODULES[match[2]]}" if match else "lm_head"
        b = weights.rows_of(name, parts["lora_b"])
        deltas[module] = (alpha / b.shape[1] if alpha else 1.0) * (b @ parts["lora_a"])
    return deltas


def read(path, weights):
    if not os.path.isdir(path):
        return (read_lycoris if path.endswith(".safetensors") else read_gguf)(path, weights)
    return (read_mlx if os.path.exists(os.path.join(path, "adapters.safetensors")) else read_peft)(path, weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter")
    parser.add_argument("--model")
    parser.add_argument("--against")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    args = parser.parse_args()
    weights = Weights(args.model)
    deltas = read(args.adapter, weights)
    if not args.against:
        for module, delta in sorted(deltas.items()):
            print(f"{module}  {delta.shape}  norm {np.linalg.norm(delta):.6g}")
        return
    other = read(args.against, weights)
    if sorted(other) != sorted(deltas):
        sys.exit(f"modules differ: {sorted(set(other) ^ set(deltas))[:4]} ...")
    worst = 0.0
    for module, delta in deltas.items():
        if delta.shape != other[module].shape:
            sys.exit(f"{module}: shapes {delta.shape} and {other[module].shape}")
        worst = max(worst, float(np.abs(delta - other[module]).max() / max(np.abs(delta).max(), np.finfo(float).tiny)))
    print(f"{len(deltas)} modules, largest difference {worst:.3e}")
    if not worst <= args.tolerance:
        sys.exit(1)


if __name__ == "__main__":
    main()
