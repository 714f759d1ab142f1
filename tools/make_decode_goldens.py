#!/usr/bin/env python3
"""Writes tests/quant/goldens/<type>.bin: stored blocks, then the F32 values the `gguf` package decodes them to.

usage: make_decode_goldens.py OUTPUT_DIRECTORY      (needs numpy and gguf; the committed files were made with gguf 0.19.0)

A file holds n blocks and n * block_values little-endian F32 values, without a header: n follows from the file's size.
"""

import pathlib
import sys

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Byte offsets of the F16 fields of a block.
F16_FIELDS = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0],
}
# +-0, subnormal (smallest, one in the middle, largest), smallest normal, 1, -1/3, largest, +-infinity, quiet and signalling NaN.
F16_EDGES = [0x0000, 0x8000, 0x0001, 0x8155, 0x03FF, 0x0400, 0x3C00, 0xB555, 0x7BFF, 0x7C00, 0xFC00, 0x7E01, 0xFD01]
F32_EDGES = [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
             0x7FC00001, 0xFF800001]


def random_scale(rng):
    return np.float16(rng.normal() * 10.0 ** rng.integers(-3, 1)).tobytes()


def block_bytes(name, rng):
    """Blocks of random codes, with ordinary scales and then with each edge value in each scale."""
    _, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    fields = F16_FIELDS[name]

    def block(codes, scales):
        block = bytearray(codes)
        for offset, scale in zip(fields, scales):
            block[offset:offset + 2] = scale
        return bytes(block)

    large = size > 80
    blocks = []
    for codes in [bytes(size), b"\xff" * size, bytes(range(size % 256)) + bytes(size - size % 256)]:
        blocks.append(block(codes, [random_scale(rng) for _ in fields]))
    for _ in range(4 if large else 16):
        blocks.append(block(rng.bytes(size), [random_scale(rng) for _ in fields]))
    for i, edge in enumerate(F16_EDGES):
        if large and i % 2 == 1:
            continue
        scales = [random_scale(rng) for _ in fields]
        scales[i // 2 % len(fields)] = edge.to_bytes(2, "little")
        blocks.append(block(rng.bytes(size), scales))
    if name.startswith("IQ4"):  # every code in every place of a byte
        blocks.append(block(bytes(17 * (i % 16) for i in range(size)), [random_scale(rng) for _ in fields]))
    return b"".join(blocks)


def mxfp4_bytes(rng):
    """Every exponent, with random codes and with every code."""
    blocks = [bytes([exponent]) + rng.bytes(16) for exponent in range(256)]
    for exponent in [0, 1, 2, 127, 254, 255]:
        blocks.append(bytes([exponent]) + bytes(17 * i for i in range(16)))
    return b"".join(blocks)


def plain_bytes(name, rng):
    count = 256
    if name == "F32":
        return np.array(F32_EDGES, dtype="<u4").tobytes() + rng.bytes(4 * count)
    edges = F16_EDGES if name == "F16" else [bits >> 16 for bits in F32_EDGES] + [0x0001]
    return np.array(edges, dtype="<u2").tobytes() + rng.bytes(2 * count)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1])
    for name in ["F32", "F16", "BF16", *F16_FIELDS, "MXFP4"]:
        rng = np.random.default_rng(sum(name.encode()))
        if name == "MXFP4":
            raw = mxfp4_bytes(rng)
        else:
            raw = block_bytes(name, rng) if name in F16_FIELDS else plain_bytes(name, rng)
        with np.errstate(all="ignore"):
            values = dequantize(np.frombuffer(raw, dtype=np.uint8), GGMLQuantizationType[name])
        (directory / f"{name}.bin").write_bytes(raw + values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
