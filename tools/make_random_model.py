#!/usr/bin/env python3
"""Writes a GGUF model of a real model's shape whose weights are random, straight in the stored type: for measurements.

usage: make_random_model.py OUT.gguf [--shape 1b] [--type Q4_K] [--head-type Q4_K]

Shape 1b: 16 layers, D 2048, H 32, G 8, C 64, F 8192, V 128256, tied head. Codes are random bits under scales that bring values to
about 1 / sqrt(columns), so that activations stay near 1. The vocabulary is the 256 bytes, spread over all of it, and tokens that no text becomes.
The same arguments give the same bytes. Made and tested with Python 3.11, gguf 0.19.0, numpy 2.4.
"""
import argparse

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

SHAPES = {"1b": dict(layers=16, d=2048, h=32, g=8, c=64, f=8192, v=128256, context=131072)}
BLOCKS_AT_ONCE = 1 << 16


def halves(value, count):
    return np.full(count, value, dtype="<f2").view(np.uint8).reshape(count, 2)


def blocks(kind, count, scale, random):
    """`count` blocks of values of at most about `scale`: uint8 [count, bytes of a block]."""
    noise = lambda n: random.integers(0, 256, (count, n), dtype=np.uint8)
    if kind == "Q4_K":  # d, d of the minima, 16 six-bit scales and minima, 256 nibbles
        return np.concatenate([halves(scale / (63 * 7.5), count), halves(scale / 63, count), noise(12 + 128)], axis=1)
    if kind == "Q8_0":  # d, 32 signed bytes
        return np.concatenate([halves(scale / 127, count), noise(32)], axis=1)
    if kind == "BF16":  # 32 values
        values = random.uniform(-scale, scale, (count, 32)).astype("<f4").view(np.uint32) >> 16
        return values.astype("<u2").view(np.uint8)
    raise SystemExit(f"no random weights of type {kind}: Q4_K, Q8_0 or BF16")


BLOCK_VALUES = {"Q4_K": 256, "Q8_0": 32, "BF16": 32}


def byte_tokens():
    """GPT-2's names of the bytes: printable Latin-1 is itself, the others follow from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names, extra = {}, 0
    for byte in range(256):
        names[byte] = chr(byte) if byte in printable else chr(256 + extra)
        extra += byte not in printable
    return [names[byte] for byte in range(256)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--shape", default="1b", choices=SHAPES)
    parser.add_argument("--type", default="Q4_K", choices=BLOCK_VALUES)
    parser.add_argument("--head-type", choices=BLOCK_VALUES, help="default: as --type")
    args = parser.parse_args()
    s = SHAPES[args.shape]
    random = np.random.default_rng(1)
    writer = GGUFWriter(args.out, "llama", use_temp_file=True)
    writer.add_name("random")
    writer.add_block_count(s["layers"])
    writer.add_context_length(s["context"])
    writer.add_embedding_length(s["d"])
    writer.add_feed_forward_length(s["f"])
    writer.add_head_count(s["h"])
    writer.add_head_count_kv(s["g"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    tokens = [f"<|unused_{i}|>" for i in range(s["v"])]
    types = [5] * s["v"]
    for byte, name in enumerate(byte_tokens()):
        tokens[2 + byte * ((s["v"] - 2) // 256)] = name
        types[2 + byte * ((s["v"] - 2) // 256)] = 1
    tokens[:2], types[:2] = ["<|endoftext|>", "th"], [3, 1]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)

    def matrix(name, rows, columns, kind=args.type):
        count = rows * columns // BLOCK_VALUES[kind]
        parts = [
            blocks(kind, min(BLOCKS_AT_ONCE, count - at), np.sqrt(3 / columns), random)
            for at in range(0, count, BLOCKS_AT_ONCE)
        ]
        data = np.concatenate(parts).reshape(rows, -1)
        writer.add_tensor(name + ".weight", data, raw_dtype=GGMLQuantizationType[kind])

    def norm(name):
        writer.add_tensor(name + ".weight", np.ones(s["d"], dtype=np.float32))

    d, q, kv, f = s["d"], s["h"] * s["c"], s["g"] * s["c"], s["f"]
    matrix("token_embd", s["v"], d, args.head_type or args.type)
    norm("output_norm")
    for i in range(s["layers"]):
        at = f"blk.{i}."
        norm(at + "attn_norm")
        matrix(at + "attn_q", q, d)
        matrix(at + "attn_k", kv, d)
        matrix(at + "attn_v", kv, d)
        matrix(at + "attn_output", d, q)
        norm(at + "ffn_norm")
        matrix(at + "ffn_gate", f, d)
        matrix(at + "ffn_up", f, d)
        matrix(at + "ffn_down", d, f)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
