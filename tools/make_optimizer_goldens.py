#!/usr/bin/env python3
"""Makes tests/optim/goldens/optimizers.json: what PyTorch's AdamW (in F32) and Muon in double precision come to after a few steps.

    python3 tools/make_optimizer_goldens.py     (needs torch and numpy)

The inputs are not stored: both sides compute them by number().
"""
import json
import pathlib

import numpy
import torch

STEPS = 6
RATE = 1e-2
DECAY = 0.1
LORA_PLUS = 4.0
MUON_SCALE = 20.0
# name, shape, how large its gradients are
PARAMETERS = [("x.lora_a", (16, 40), 1.0), ("x.lora_b", (48, 16), 2.0**-12), ("y.lora_a", (20, 20), 2.0**10), ("y.lora_b", (24, 8), 1.0)]


def number(parameter, step, index):
    """In [-1, 1), exact in F32. The same hash is in optimizer_test.cc."""
    x = (index * 2654435761 + step * 40503 * 65537 + parameter * 97) % 2**32
    x ^= x >> 15
    x = x * 2246822519 % 2**32
    x ^= x >> 13
    return (x >> 20) / 2048.0 - 1.0


def numbers(parameter, step, shape):
    return numpy.array([number(parameter, step, i) for i in range(shape[0] * shape[1])]).reshape(shape)


def rate_of(name):
    return RATE * (LORA_PLUS if name.endswith("lora_b") else 1.0)


def adamw(parameters):
    tensors = {name: torch.nn.Parameter(torch.tensor(numbers(p, 0, shape), dtype=torch.float32)) for p, name, shape, _ in parameters}
    optimizer = torch.optim.AdamW([{"params": [t], "lr": rate_of(n)} for n, t in tensors.items()], weight_decay=DECAY)
    for step in range(1, STEPS + 1):
        for p, name, shape, scale in parameters:
            tensors[name].grad = torch.tensor(scale * numbers(p, step, shape), dtype=torch.float32)
        optimizer.step()
    return {name: tensor.detach().numpy().astype(float).ravel().tolist() for name, tensor in tensors.items()}


def muon(p, name, shape, scale):
    values, momentum = numbers(p, 0, shape), numpy.zeros(shape)
    for step in range(1, STEPS + 1):
        gradient = scale * numbers(p, step, shape)
        momentum = 0.95 * momentum + gradient
        x = gradient + 0.95 * momentum
        x = x / (numpy.linalg.norm(x) + 1e-6)
        tall = shape[0] > shape[1]
        x = x.T if tall else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        x = x.T if tall else x
        rate = rate_of(name)
        values = (1 - rate * DECAY) * values - rate * MUON_SCALE * max(1.0, shape[0] / shape[1]) ** 0.5 * x
    return values.ravel().tolist()


def main():
    numbered = [(p, *row) for p, row in enumerate(PARAMETERS)]
    hybrid = {n: muon(p, n, s, g) for p, n, s, g in numbered if min(s) >= 16}
    hybrid.update(adamw([row for row in numbered if min(row[2]) < 16]))
    rounded = lambda found: {name: [float(f"{v:.9g}") for v in values] for name, values in found.items()}
    out = {"torch": torch.__version__, "steps": STEPS, "rate": RATE, "decay": DECAY, "loraPlus": LORA_PLUS, "muonScale": MUON_SCALE,
           "parameters": [{"name": n, "shape": s, "gradientScale": g} for n, s, g in PARAMETERS],
           "adamw": rounded(adamw(numbered)), "muon": rounded(hybrid)}
    path = pathlib.Path(__file__).parent.parent / "tests/optim/goldens/optimizers.json"
    path.write_text(json.dumps(out) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
