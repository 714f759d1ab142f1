#!/usr/bin/env python3
"""Writes a random ACE-Step diffusion transformer (safetensors, the original checkpoint's names) and cached songs for it.

usage: make_dit_data.py model OUT.safetensors [--shape 2b|xl|tiny] [--layers N] [--type bf16|f32] [--seed N]
       make_dit_data.py songs OUT_DIRECTORY [--songs N] [--seconds S] [--tokens E] [--shape 2b|xl|tiny] [--shuffled] [--seed N]

Needs numpy, safetensors and ml_dtypes (for bf16). The model's last layer undoes its first as far as random weights let it, so that its
inputs can be seen in its outputs, as in a trained model. The songs are structured: each latent channel is the sum of two slow sines of its
own, so that a frame can be told from its neighbours (songs of 160 s: of so many different sines that a frame alone tells little);
--shuffled puts the frames of each song in random order, which leaves nothing to learn but their spread. The context of a frame is zeros
and ones as for a whole song to be made.
"""
import argparse
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

SHAPES = {
    "2b": dict(d=2048, f=6144, layers=24, h=16, g=8, c=128, latents=64, context=128, e=2048),
    "xl": dict(d=2560, f=9728, layers=32, h=32, g=8, c=128, latents=64, context=128, e=2048),
    "tiny": dict(d=256, f=512, layers=2, h=4, g=2, c=64, latents=16, context=32, e=256),
}


def shapes(s):
    d, q, kv = s["d"], s["h"] * s["c"], s["g"] * s["c"]
    for name in ("time_embed", "time_embed_r"):
        yield from ((f"{name}.linear_1.weight", (d, 256)), (f"{name}.linear_1.bias", (d,)), (f"{name}.linear_2.weight", (d, d)),
                    (f"{name}.linear_2.bias", (d,)), (f"{name}.time_proj.weight", (6 * d, d)), (f"{name}.time_proj.bias", (6 * d,)))
    yield from (("proj_in.1.weight", (d, s["latents"] + s["context"], 2)), ("proj_in.1.bias", (d,)),
                ("condition_embedder.weight", (d, s["e"])), ("condition_embedder.bias", (d,)))
    for i in range(s["layers"]):
        layer = f"layers.{i}."
        for attention in ("self_attn", "cross_attn"):
            yield layer + attention + "_norm.weight", (d,)
            for site, shape in (("q", (q, d)), ("k", (kv, d)), ("v", (kv, d)), ("o", (d, q))):
                yield f"{layer}{attention}.{site}_proj.weight", shape
            for site in "qk":
                yield f"{layer}{attention}.{site}_norm.weight", (s["c"],)
        yield layer + "mlp_norm.weight", (d,)
        for site, shape in (("gate", (s["f"], d)), ("up", (s["f"], d)), ("down", (d, s["f"]))):
            yield f"{layer}mlp.{site}_proj.weight", shape
        yield layer + "scale_shift_table", (1, 6, d)
    yield from (("norm_out.weight", (d,)), ("scale_shift_table", (1, 2, d)), ("proj_out.1.weight", (d, s["latents"], 2)),
                ("proj_out.1.bias", (s["latents"],)))


def write_model(args):
    s = dict(SHAPES[args.shape])
    s["layers"] = args.layers or s["layers"]
    random = np.random.default_rng(args.seed)
    if args.type == "bf16":
        import ml_dtypes
        dtype = ml_dtypes.bfloat16
    else:
        dtype = np.float32
    tensors, first = {}, None
    for name, shape in shapes(s):
        if name.endswith("norm.weight") or name == "norm_out.weight":
            value = 1 + 0.1 * random.standard_normal(shape, dtype=np.float32)
        elif "scale_shift_table" in name:
            value = random.standard_normal(shape, dtype=np.float32) / s["d"] ** 0.5
        elif len(shape) == 1:
            value = 0.02 * random.standard_normal(shape, dtype=np.float32)
        else:
            value = random.standard_normal(shape, dtype=np.float32) / np.float32(np.prod(shape[1:])) ** 0.5
        if name == "proj_in.1.weight":
            first = value
        elif name == "proj_out.1.weight":
            value = np.ascontiguousarray(first[:, s["context"]:]) * np.float32(0.2)
        tensors["decoder." + name] = value.astype(dtype)
    tensors["null_condition_emb"] = (0.5 * random.standard_normal((1, 1, s["e"]), dtype=np.float32)).astype(dtype)
    save_file(tensors, args.out)


def write_songs(args):
    s = SHAPES[args.shape]
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for i in range(args.songs):
        random = np.random.default_rng([args.seed, i])
        frames = max(2, round(args.seconds * 25))
        t = np.arange(frames)[:, None]
        periods = np.exp(random.uniform(np.log(330), np.log(1000), size=(2, 1, s["latents"])))  # frames
        phases = random.uniform(size=(2, 1, s["latents"]))
        latents = np.sin(2 * np.pi * (t / periods + phases)).sum(0)
        if args.shuffled:
            random.shuffle(latents)
        context = np.zeros((frames, s["context"]))
        context[:, s["context"] // 2:] = 1
        save_file({
            "target_latents": latents.astype(np.float32),
            "context_latents": context.astype(np.float32),
            "attention_mask": np.ones(frames, dtype=np.float32),
            "encoder_hidden_states": random.normal(size=(args.tokens, s["e"])).astype(np.float32),
            "encoder_attention_mask": np.ones(args.tokens, dtype=np.float32),
        }, out / f"song{i:03}.safetensors", metadata={"caption": f"song {i}"})


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.split("\n\n")[1])
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["model", "songs"])
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--type", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--songs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write_model(args) if args.what == "model" else write_songs(args)


main()
