#!/usr/bin/env python3
"""Writes tests/model/goldens/dit_NAME.safetensors: what diffusers' AceStepTransformer1DModel and PyTorch's autograd make of small random
diffusion transformers.

usage: make_dit_goldens.py OUTPUT_DIRECTORY

Needs torch, diffusers and safetensors; the committed files were made with torch 2.15.0 and diffusers 0.42.1. Weights, inputs and LoRA
factors are not stored: both sides make them from their names (numbers() here, tests/support/tiny_dit.cc there). A file holds, for song
S, "S.velocity" [frames, latents] and "S.hidden.N" [T, D] after layer N; "loss", the sum over the songs of the squared errors of the
velocity in the first forward's targets; and its gradients, "layers.N.SITE.lora_a" [R, in] and "layers.N.SITE.lora_b" [out, R].
"""
import pathlib
import sys

import numpy as np
import torch
from diffusers import AceStepTransformer1DModel
from safetensors.numpy import save_file

RANK, SCALE = 2, 1.5
CONFIGS = {
    # frames and conditioning tokens of each song, t, r
    "even": (dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                  in_channels=12, audio_acoustic_hidden_dim=4, patch_size=2, rope_theta=1e6, rms_norm_eps=1e-6, sliding_window=3,
                  encoder_hidden_size=24), [(22, 5, 0.375, 0.375), (16, 9, 0.875, 0.875)]),
    "odd": (dict(hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
                 in_channels=20, audio_acoustic_hidden_dim=8, patch_size=2, rope_theta=1e4, rms_norm_eps=1e-5, sliding_window=2,
                 encoder_hidden_size=40), [(15, 7, 0.8125, 0.25), (9, 3, 0.0625, 0.0625)]),
}
SITES = {"self.q": "self_attn.to_q", "self.k": "self_attn.to_k", "self.v": "self_attn.to_v", "self.o": "self_attn.to_out.0",
         "cross.q": "cross_attn.to_q", "cross.k": "cross_attn.to_k", "cross.v": "cross_attn.to_v", "cross.o": "cross_attn.to_out.0",
         "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}


def numbers(name, count):
    """Uniform in [-1, 1): a hash of the name and the index (FNV-1a, then the finaliser of MurmurHash3)."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    x = (np.arange(count, dtype=np.uint64) * 0x9E3779B1 + seed) % 2**32
    x ^= x >> 16
    x = x * 0x85EBCA6B % 2**32
    x ^= x >> 13
    x = x * 0xC2B2AE35 % 2**32
    x ^= x >> 16
    return x.astype(np.float64) / 2**31 - 1


def tensor(name, shape, scale, offset=0.0):
    return torch.from_numpy((offset + scale * numbers(name, int(np.prod(shape)))).astype(np.float32).reshape(shape))


def original(name):
    """The original checkpoint's name of a parameter."""
    for theirs, ours in (("to_q", "q_proj"), ("to_k", "k_proj"), ("to_v", "v_proj"), ("to_out.0", "o_proj"), ("norm_q", "q_norm"),
                         ("norm_k", "k_norm"), ("proj_in_conv", "proj_in.1"), ("proj_out_conv", "proj_out.1")):
        name = name.replace(theirs, ours)
    return "decoder." + name


def fill(model):
    for name, parameter in model.named_parameters():
        ours = original(name)
        if "norm" in ours:
            value = tensor(ours, parameter.shape, 0.3, 1.0)
        elif parameter.ndim == 1:
            value = tensor(ours, parameter.shape, 0.2)
        elif "scale_shift_table" in ours:
            value = tensor(ours, parameter.shape, 0.5)
        else:
            fan_in = parameter[0].numel() if "proj_out" not in ours else parameter.shape[0]
            value = tensor(ours, parameter.shape, (3 / fan_in) ** 0.5)
        parameter.data.copy_(value)
        parameter.requires_grad_(False)


class Sinusoid(torch.nn.Module):
    """That of diffusers, whose frequencies are rounded to single precision: with them alone cosines of 1000 t are off by 2e-5."""
    def forward(self, t):
        angles = t.double()[:, None] * 10000.0 ** (-torch.arange(128, dtype=torch.float64) / 128)
        return torch.cat([angles.cos(), angles.sin()], dim=-1).float()


class Lora(torch.nn.Module):
    def __init__(self, base, name):
        super().__init__()
        out, width = base.weight.shape
        self.base = base
        self.a = torch.nn.Parameter(tensor(name + ".lora_a", (RANK, width), (1 / width) ** 0.5))
        self.b = torch.nn.Parameter(tensor(name + ".lora_b", (out, RANK), 0.3))

    def forward(self, x):
        return self.base(x) + SCALE * (x @ self.a.T) @ self.b.T


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    directory = pathlib.Path(sys.argv[1])
    for name, (config, songs) in CONFIGS.items():
        model = AceStepTransformer1DModel(**config).float().eval()
        fill(model)
        theirs, ours = model.time_embed.time_sinusoid(torch.tensor([375.0])), Sinusoid()(torch.tensor([375.0]))
        assert (theirs - ours).abs().max() < 1e-4
        model.time_embed.time_sinusoid = model.time_embed_r.time_sinusoid = Sinusoid()
        latents, context = config["audio_acoustic_hidden_dim"], config["in_channels"] - config["audio_acoustic_hidden_dim"]
        hidden = []
        for layer in model.layers:
            layer.register_forward_hook(lambda module, inputs, output: hidden.append(output[0].detach().numpy().copy()))
        def velocity(s):
            frames, tokens, t, r = songs[s]
            return model(tensor(f"{s}.latent", (1, frames, latents), 1), torch.tensor([t]), torch.tensor([r]),
                         tensor(f"{s}.conditioning", (1, tokens, config["encoder_hidden_size"]), 1),
                         tensor(f"{s}.context", (1, frames, context), 1)).sample[0]
        stored = {}
        for s in range(len(songs)):
            hidden.clear()
            stored[f"{s}.velocity"] = velocity(s).numpy()
            stored.update({f"{s}.hidden.{i}": h for i, h in enumerate(hidden)})
        loras = {}
        for i, layer in enumerate(model.layers):
            for site, path in SITES.items():
                *parents, last = path.split(".")
                parent = layer.get_submodule(".".join(parents))
                label = f"layers.{i}.{site}"
                loras[label] = Lora(getattr(parent, last), label)
                setattr(parent, last, loras[label])
        loss = sum(((velocity(s) - tensor(f"{s}.target", (songs[s][0], latents), 1)) ** 2).sum() for s in range(len(songs)))
        loss.backward()
        stored["loss"] = np.array([loss.item()], dtype=np.float32)
        for label, lora in loras.items():
            stored[label + ".lora_a"], stored[label + ".lora_b"] = lora.a.grad.numpy(), lora.b.grad.numpy()
        save_file({key: np.ascontiguousarray(value) for key, value in stored.items()}, directory / f"dit_{name}.safetensors")
        print(name, loss.item(), sum(value.nbytes for value in stored.values()), "bytes")


main()
