#!/usr/bin/env python3
"""Writes what llama.cpp thinks of a fixed text: per position the best next tokens with their log-probabilities.

usage: make_logit_goldens.py MODEL.gguf TEXT OUT.bin [--exact] [--positions N] [--top K]

The first N (1024) tokens of TEXT, without BOS, run teacher-forced as one sequence. --exact means F32 keys and values and no flash
attention (for an F32 copy of a model, see make_f32_copy.py); without it llama.cpp's defaults for a CPU run apply (F16 keys and
values, flash attention, activations rounded to 8 bits against quantised weights). The goldens in tests/infer/goldens were made by
    make_logit_goldens.py smollm2-f32.gguf tests/infer/goldens/passage.txt tests/infer/goldens/smollm2_f32.bin --exact
    make_logit_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf tests/infer/goldens/passage.txt tests/infer/goldens/smollm2_q4_1.bin
with Python 3.11, llama-cpp-python 0.3.36 (2 threads, x86-64), numpy 2.4.

OUT, little endian, no padding:
    bytes 0-7    "PATLOGIT"
    8   u32      version, 1
    12  u32      N, positions
    16  u32      K, tokens kept a position
    20  u32      V, vocabulary (at most 65536)
    24  f64      mean negative log-likelihood in nats of tokens 1..N-1, each predicted at the position before (perplexity = e^mean)
    32  u16[N]      the tokens; position i has seen tokens 0..i
        u16[N][K]   at each position the K likeliest next tokens, likeliest first (lower id first among equals)
        f32[N][K]   their log-probabilities, natural logarithm
        f32[N]      log of the probability of all other tokens together
Log-probabilities are taken in double precision from llama.cpp's F32 logits, then rounded to f32.
"""
import argparse
import struct

import numpy as np

from run_llama_cpp import open_model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--top", type=int, default=64)
    args = parser.parse_args()
    n, k = args.positions, args.top
    model = open_model(args.model, n, f32_kv=args.exact, flash=not args.exact, all_logits=True)
    with open(args.text, "rb") as file:
        tokens = model.tokenize(file.read(), add_bos=False)[:n]
    vocabulary = model.n_vocab()
    if len(tokens) < n or vocabulary > 65536:
        parser.error(f"need {n} tokens and at most 65536 words, found {len(tokens)} and {vocabulary}")
    model.eval(tokens)
    nll, ids, logprobs, rest = 0.0, [], [], []
    for i, logits in enumerate(model.scores[:n].astype(np.float64)):
        z = logits - logits.max()
        z -= np.log(np.exp(z).sum())
        order = np.argsort(-z, kind="stable")
        ids.append(order[:k])
        logprobs.append(z[order[:k]])
        rest.append(np.log(np.exp(z[order[k:]]).sum()))
        if i + 1 < n:
            nll -= z[tokens[i + 1]]
    nll /= n - 1
    with open(args.out, "wb") as file:
        file.write(struct.pack("<8sIIIId", b"PATLOGIT", 1, n, k, vocabulary, nll))
        for array, kind in ((tokens, "<u2"), (ids, "<u2"), (logprobs, "<f4"), (rest, "<f4")):
            file.write(np.asarray(array).astype(kind).tobytes())
    print(f"{args.out}: mean NLL {nll:.6f}, perplexity {np.exp(nll):.4f}, other tokens' mass {np.exp(rest).mean():.4f} on average")


if __name__ == "__main__":
    main()
