#!/usr/bin/env python3
"""The peer PyTorch + PEFT of bench/peers.py: trains LoRA on a GGUF model's dequantised weights, on the CPU, and prints a line of JSON.

Plain eager PyTorch as PEFT's own guide has it: AdamW over the adapter, no gradient checkpointing, PyTorch's scaled dot-product
attention. Needs torch, transformers, accelerate, peft and gguf. `peer_peft.py save MODEL DIR` writes the F32 model for other peers.
"""

import argparse
import json
import os
import sys
import time

import peft
import torch
import transformers


def load(file, dtype):
    """The dequantised model and its tokenizer."""
    directory, name = os.path.split(os.path.abspath(file))
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, gguf_file=name, dtype=dtype)
    return model, transformers.AutoTokenizer.from_pretrained(directory, gguf_file=name)


def save(file, directory):
    """Writes the F32 model in the form of Hugging Face, for peers that read nothing else."""
    model, tokenizer = load(file, torch.float32)
    model.hf_quantizer = None  # what was dequantised is refused otherwise
    del model.config.quantization_config
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--type", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    if sys.argv[1:2] == ["save"]:
        save(*sys.argv[2:])
        return
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    base, tokenizer = load(arguments.model, getattr(torch, arguments.type))
    sites = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", r=arguments.rank, lora_alpha=2 * arguments.rank,
                                                      target_modules=sites))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    with open(arguments.text) as text:
        ids = torch.tensor(tokenizer(text.read())["input_ids"])
    milliseconds = []
    for step in range(arguments.steps):
        rows = ids[step * arguments.context:(step + 1) * arguments.context][None]
        start = time.perf_counter()
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"milliseconds": milliseconds, "loss": loss.item(),
                      "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
                      "versions": f"PyTorch {torch.__version__}, PEFT {peft.__version__}, transformers {transformers.__version__}"}))


if __name__ == "__main__":
    main()
