#!/usr/bin/env python3
"""Answers prompts greedily with llama.cpp: shows what a GGUF model, with or without a LoRA adapter, says outside Patina.

usage: run_llama_cpp.py MODEL.gguf PROMPTS.jsonl [--lora ADAPTER.gguf] [--tokens N] [--f32-kv] [--no-flash] [--threads N]

Each line of PROMPTS has "ids" (token ids, taken as they are) or "prompt" (one user message, rendered with the model's own chat
template). Other keys are ignored, so a heldout.jsonl serves. Prints one line each, in order: {"prompt", "text", "ids"}; "ids" are
the generated tokens without the end marker. Greedy: the lowest id among equal logits.
Tested with Python 3.11, llama-cpp-python 0.3.36, jinja2 3.1, numpy 2.4.
"""
import argparse
import json

import jinja2
import llama_cpp
import numpy as np


def open_model(path, context, lora=None, f32_kv=False, flash=True, threads=2, all_logits=False):
    kv = llama_cpp.GGML_TYPE_F32 if f32_kv else llama_cpp.GGML_TYPE_F16
    return llama_cpp.Llama(path, n_ctx=context, n_batch=min(context, 512), lora_path=lora, type_k=kv, type_v=kv, flash_attn=flash,
                           n_threads=threads, n_threads_batch=threads, logits_all=all_logits, verbose=False)


def chat_prompt_ids(model, text):
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    piece = lambda token: model.detokenize([token], special=True).decode() if token >= 0 else ""
    rendered = environment.from_string(model.metadata["tokenizer.chat_template"]).render(
        messages=[{"role": "user", "content": text}], add_generation_prompt=True,
        bos_token=piece(model.token_bos()), eos_token=piece(model.token_eos()))
    ids = model.tokenize(rendered.encode(), add_bos=False, special=True)
    # Some templates write BOS themselves; it must stand there once.
    if llama_cpp.llama_vocab_get_add_bos(vocab) and ids[:1] != [model.token_bos()]:
        ids.insert(0, model.token_bos())
    return ids


def generate(model, ids, tokens):
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    model.reset()
    out = []
    while len(out) < tokens:
        model.eval(ids if not out else out[-1:])
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), shape=(model.n_vocab(),))
        token = int(np.argmax(logits))
        if llama_cpp.llama_vocab_is_eog(vocab, token):
            break
        out.append(token)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts")
    parser.add_argument("--lora")
    parser.add_argument("--tokens", type=int, default=64, help="most tokens a prompt")
    parser.add_argument("--f32-kv", action="store_true", help="keep keys and values in F32 instead of F16")
    parser.add_argument("--no-flash", action="store_true", help="switch flash attention off")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    model = open_model(args.model, 2048, args.lora, args.f32_kv, not args.no_flash, args.threads)
    with open(args.prompts, encoding="utf-8") as file:
        for line in map(json.loads, filter(str.strip, file)):
            ids = generate(model, line.get("ids") or chat_prompt_ids(model, line["prompt"]), args.tokens)
            text = model.detokenize(ids).decode(errors="replace")
            print(json.dumps({"prompt": line.get("prompt"), "text": text, "ids": ids}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
