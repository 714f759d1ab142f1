#!/usr/bin/env python3
"""Loads an adapter with PEFT or LyCORIS onto a GGUF model that transformers dequantises, and prints the loss of a text.

usage: hf_loss.py MODEL.gguf TEXT.txt [--adapter PEFT_DIRECTORY | FILE.safetensors]

The figure to compare with: patina eval --model MODEL.gguf --adapter ... --data TEXT.txt --loss-on all --json. Says which keys of the
adapter were missing or unexpected, and exits 1 where there are any. F32 arithmetic.
Tested with Python 3.11, torch 2.15.0, transformers 5.24.0, peft 0.21.2, lycoris-lora 4.1.3.
"""
import argparse
import os
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--adapter")
    args = parser.parse_args()
    folder, name = os.path.split(os.path.abspath(args.model))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    ids = tokenizer(open(args.text, encoding="utf-8").read(), return_tensors="pt").input_ids
    missing, unexpected = [], []
    if args.adapter and os.path.isdir(args.adapter):
        from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
        config = PeftConfig.from_pretrained(args.adapter)
        model = get_peft_model(model, config)
        result = set_peft_model_state_dict(model, load_file(os.path.join(args.adapter, "adapter_model.safetensors")))
        marks = ("lora_", "lokr_")
        missing = [key for key in result.missing_keys if any(mark in key for mark in marks)]
        unexpected = list(result.unexpected_keys)
    elif args.adapter:
        from lycoris import create_lycoris_from_weights
        network, tensors = create_lycoris_from_weights(1.0, args.adapter, model)
        names = {lora.lora_name for lora in network.loras}
        unexpected = sorted({key.split(".")[0] for key in tensors} - names)
        network.apply_to()  # not merge_to(): that of 4.1.3 multiplies LoKr's change by its scale twice
    print(f"missing keys {len(missing)} {missing[:3]}, unexpected keys {len(unexpected)} {unexpected[:3]}")
    with torch.no_grad():
        loss = model(input_ids=ids, labels=ids).loss
    print(f"tokens {ids.shape[1]}, loss {loss.item():.6f}")
    if missing or unexpected:
        sys.exit(1)


if __name__ == "__main__":
    main()
