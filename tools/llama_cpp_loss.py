#!/usr/bin/env python3
"""Measures the mean loss of a data set in llama.cpp, token for token as `patina eval` takes it, and prints a line of JSON.

usage: llama_cpp_loss.py MODEL.gguf DATA [--lora ADAPTER.gguf] [--context 512] [--f32-kv] [--no-flash] [--threads N]

DATA is a .txt file, cut into consecutive sequences of --context tokens (models that want a BOS token are not supported there), or a
.jsonl file of {"messages": [user, assistant]}, where the loss is that of the answer and its end marker. Prints {"loss",
"supervisedTokens"}; compare both with: patina eval --model MODEL.gguf --adapter ... --data DATA --json.
Tested with Python 3.11, llama-cpp-python 0.3.36, jinja2 3.1, numpy 2.4.
"""
import argparse
import json

import numpy as np

from run_llama_cpp import chat_prompt_ids, open_model


def sequences(model, path, context):
    """(token ids, where the supervised ones begin) of each sequence."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".txt"):
        ids = model.tokenize(text.encode(), add_bos=False)
        for at in range(0, len(ids), context):
            yield ids[at:at + context], 1
        return
    for line in filter(str.strip, text.splitlines()):
        user, assistant = (message["content"] for message in json.loads(line)["messages"])
        prompt = chat_prompt_ids(model, user)
        answer = model.tokenize(assistant.encode(), add_bos=False) + [model.token_eos()]
        yield (prompt + answer)[:context], len(prompt)


def loss_of(model, ids, start):
    model.reset()
    model.eval(ids)
    logits = model.scores[start - 1:len(ids) - 1].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), ids[start:]]).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--lora")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--f32-kv", action="store_true", help="keep keys and values in F32 instead of F16")
    parser.add_argument("--no-flash", action="store_true", help="switch flash attention off")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    model = open_model(args.model, args.context, args.lora, args.f32_kv, not args.no_flash, args.threads, all_logits=True)
    total = count = 0
    for ids, start in sequences(model, args.data, args.context):
        if len(ids) > start:
            total += loss_of(model, ids, start)
            count += len(ids) - start
    print(json.dumps({"loss": total / count, "supervisedTokens": count}))


if __name__ == "__main__":
    main()
