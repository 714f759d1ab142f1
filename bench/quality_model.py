#!/usr/bin/env python3
"""Trains a small language model on text files with PyTorch and writes it as an F32 GGUF: a parent for bench/quality.py.

usage: bench/quality_model.py OUT.gguf FILE... [--steps 600] [--threads N]

Llama architecture: 4 layers, D 256, H 4, G 2, C 64, F 768, tied head, so that every K is a multiple of 256 and pure K types of it
exist. A token is a byte. Batches of 8 pieces of 256 bytes, AdamW, cosine schedule; the same arguments give the same model on one machine.
Made and tested with Python 3.11, torch 2.15.0, gguf 0.19.0.
"""
import argparse
import math
import pathlib
import time

import numpy as np
import torch
from gguf import GGUFWriter
from torch import nn
from torch.nn import functional

from make_random_model import byte_tokens

LAYERS, D, H, G, C, F, CONTEXT, BATCH, RATE = 4, 256, 4, 2, 64, 768, 256, 8, 3e-3
BASE, EPSILON = 10000.0, 1e-5
FIRST_BYTE = 2  # the token of byte 0; before it, the end of a text and a token that no text becomes
VOCABULARY = FIRST_BYTE + 256


def rotate(x, angles):
    """Pairs of neighbouring numbers, as GGUF files of the llama family have them. x [B, heads, T, C], angles [T, C / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.RMSNorm(D, EPSILON), nn.RMSNorm(D, EPSILON)
        for name, inside, outside in [("attn_q", D, H * C), ("attn_k", D, G * C), ("attn_v", D, G * C), ("attn_output", H * C, D),
                                      ("ffn_gate", D, F), ("ffn_up", D, F), ("ffn_down", F, D)]:
            setattr(self, name, nn.Linear(inside, outside, bias=False))

    def forward(self, x, angles):
        b, t, _ = x.shape
        normed = self.attn_norm(x)
        heads = lambda y: y.view(b, t, -1, C).transpose(1, 2)
        q, k, v = rotate(heads(self.attn_q(normed)), angles), rotate(heads(self.attn_k(normed)), angles), heads(self.attn_v(normed))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.attn_output(attended.transpose(1, 2).reshape(b, t, H * C))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCABULARY, D)
        self.blk = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output_norm = nn.RMSNorm(D, EPSILON)
        for weight in (p for p in self.parameters() if p.dim() == 2):
            nn.init.normal_(weight, std=0.02)

    def forward(self, ids):
        angles = torch.outer(torch.arange(ids.shape[1]), BASE ** (-torch.arange(0, C, 2) / C))
        x = self.token_embd(ids)
        for layer in self.blk:
            x = layer(x, angles)
        return self.output_norm(x) @ self.token_embd.weight.T


def train(model, text, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
    random = np.random.default_rng(1)
    start = time.time()
    for step in range(steps):
        rate = RATE * min(1, (step + 1) / 50) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        at = random.integers(0, len(text) - CONTEXT - 1, BATCH)
        pieces = torch.from_numpy(np.stack([text[i:i + CONTEXT + 1] for i in at])).long() + FIRST_BYTE
        loss = functional.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1} of {steps}, loss {loss.item():.4f} nats a byte, {time.time() - start:.0f} s", flush=True)


def write(model, path):
    writer = GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(F)
    writer.add_head_count(H)
    writer.add_head_count_kv(G)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(BASE)
    writer.add_rope_dimension_count(C)
    writer.add_vocab_size(VOCABULARY)
    names = byte_tokens()
    merged = names[0xC0] + names[0xC1]  # two bytes that UTF-8 never has: the one merge that a file must have
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<|endoftext|>", merged, *names])
    writer.add_token_types([3, 1] + [1] * 256)
    writer.add_token_merges([f"{names[0xC0]} {names[0xC1]}"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    for name, values in model.state_dict().items():
        writer.add_tensor(name, values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    text = np.frombuffer(b"\n".join(file.read_bytes() for file in sorted(arguments.files)), dtype=np.uint8)
    model = Model()
    print(f"{len(text)} bytes, {sum(p.numel() for p in model.parameters())} weights", flush=True)
    train(model, text, arguments.steps)
    write(model, arguments.out)


if __name__ == "__main__":
    main()
