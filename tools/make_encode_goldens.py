#!/usr/bin/env python3
"""Writes tests/quant/goldens/encode_<type>.bin: F32 values, then the stored bytes that the `gguf` package makes of them.

usage: make_encode_goldens.py OUTPUT_DIRECTORY      (needs numpy and gguf; the committed files were made with gguf 0.19.0)

A file holds n values, a multiple of 32, and their encoding, without a header: n follows from the file's size.
"""

import pathlib
import sys

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

BLOCK = 32


def blocks():
    """Ordinary blocks of many sizes, and blocks at every edge of the rules."""
    rng = np.random.default_rng(6)
    rows = [rng.normal(size=BLOCK) * 10.0**exponent for exponent in (-6, -5, -4, -3, -2, -1, 0, 1, 2, 3) for _ in range(3)]
    rows.append(np.zeros(BLOCK))
    rows.append(-np.zeros(BLOCK))
    rows.append(np.full(BLOCK, 0.7))
    rows.append(np.full(BLOCK, -0.7))
    rows.append(np.arange(BLOCK) - 15.5)  # ties of all kinds
    rows.append(np.arange(BLOCK) * 0.5 - 8)
    rows.append(np.arange(BLOCK) * 127 / 62 - 63.5)
    rows.append(np.where(np.arange(BLOCK) % 2, 5, -5))  # two largest
    rows.append(np.arange(BLOCK) * 2.0**-25)  # subnormal in F16, with ties
    rows.append((2.0**-14) * (1 + np.arange(BLOCK) * 2.0**-11 - 2.0**-7))  # around the smallest normal of F16
    rows.append(1 + np.arange(BLOCK) * 2.0**-12)  # ties of F16
    rows.append(65000 + np.arange(BLOCK) * 16)  # up to the largest of F16: 65504 rounds, 65520 does not
    rows.append(1 + np.arange(BLOCK) * 2.0**-9)  # ties of BF16
    return np.concatenate(rows).astype("<f4")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    values = blocks()
    for name in ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]:
        with np.errstate(over="ignore"):
            stored = quantize(values, GGMLQuantizationType[name])
        (pathlib.Path(sys.argv[1]) / f"encode_{name}.bin").write_bytes(values.tobytes() + stored.tobytes())


if __name__ == "__main__":
    main()
