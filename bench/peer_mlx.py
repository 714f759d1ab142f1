#!/usr/bin/env python3
"""The peer MLX of bench/peers.py: trains LoRA with mlx-lm's own layers, in F32 on the CPU, and prints a line of JSON.

The model is a directory in the form of Hugging Face. Needs mlx-lm and, on Linux, mlx[cpu].
"""

import argparse
import importlib.metadata
import json
import time

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers
import mlx_lm
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers

SITES = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
         "mlp.down_proj"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    model, tokenizer = mlx_lm.load(arguments.model)
    model.freeze()
    linear_to_lora_layers(model, len(model.layers), {"rank": arguments.rank, "scale": 2.0, "dropout": 0.0, "keys": SITES})
    model.train()
    optimizer = mlx.optimizers.AdamW(learning_rate=1e-4)
    with open(arguments.text) as text:
        ids = mx.array(tokenizer.encode(text.read()))

    def loss_of(model, rows):
        return nn.losses.cross_entropy(model(rows[:, :-1]), rows[:, 1:]).mean()

    step_of = nn.value_and_grad(model, loss_of)
    milliseconds = []
    for step in range(arguments.steps):
        rows = ids[step * arguments.context:(step + 1) * arguments.context][None]
        start = time.perf_counter()
        loss, gradients = step_of(model, rows)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state, loss)
        milliseconds.append((time.perf_counter() - start) * 1e3)
    trainable = sum(p.size for _, p in tree_flatten(model.trainable_parameters()))
    version = importlib.metadata.version
    print(json.dumps({"milliseconds": milliseconds, "loss": loss.item(), "trainable": trainable,
                      "versions": f"MLX {version('mlx')}, mlx-lm {version('mlx-lm')}"}))


if __name__ == "__main__":
    main()
