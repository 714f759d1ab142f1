#!/usr/bin/env python3
"""Writes tests/adapter/goldens/: small adapters made by PEFT and LyCORIS, with the weight changes that those packages compute.

usage: make_adapter_goldens.py OUTPUT_DIRECTORY

Needs torch, transformers, peft, lycoris-lora and safetensors; the committed files were made with torch 2.15.0, transformers 5.24.0,
peft 0.21.2 and lycoris-lora 4.1.3. The base is a random Llama of two layers, width 16. NAME/ is a PEFT directory, NAME.safetensors a
LyCORIS file; NAME.expected.safetensors holds for every adapted module its weight ("MODULE.weight") and the adapted weight minus it
("MODULE.delta").
"""
import json
import pathlib
import shutil
import sys

import torch
from lycoris import LycorisNetwork
from peft import LoKrConfig, LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

TARGETS = ["q_proj", "down_proj"]


def base():
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=20, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2)
    return LlamaForCausalLM(config).float()


def fill(parameters):
    """What training would leave: no factor is zero."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in parameters:
            if "magnitude" in name or "dora_scale" in name:
                parameter.mul_(1 + 0.2 * torch.rand(parameter.shape, generator=generator))
            else:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))


def weights(model):
    return {name.removesuffix(".weight"): value.clone() for name, value in model.state_dict().items()
            if name.split(".")[-2] in TARGETS}


def save_expected(path, before, after):
    tensors = {}
    for module, weight in before.items():
        if torch.equal(weight, after[module]):
            continue
        tensors[module + ".weight"] = weight
        tensors[module + ".delta"] = (after[module].double() - weight.double()).float().contiguous()
    save_file(tensors, path)


def peft(directory, name, config):
    model = base()
    before = weights(model)
    adapted = get_peft_model(model, config)
    fill((n, p) for n, p in adapted.named_parameters() if p.requires_grad)
    target = directory / name
    shutil.rmtree(target, ignore_errors=True)
    adapted.save_pretrained(target)
    (target / "README.md").unlink(missing_ok=True)
    save_expected(directory / f"{name}.expected.safetensors", before, weights(adapted.merge_and_unload()))


def lycoris(directory, name, **options):
    model = base()
    before = weights(model)
    LycorisNetwork.apply_preset({"target_module": [], "target_name": [f"*.{target}" for target in TARGETS], "use_fnmatch": True})
    network = LycorisNetwork(model, **options)  # create_lycoris() drops rs_lora without a word
    network.apply_to()
    fill(network.named_parameters())
    network.save_weights(str(directory / f"{name}.safetensors"), torch.float32, {"note": "golden"})
    # What the adapted layers compute. (merge_to() of this version multiplies LoKr's change by its scale twice.)
    with torch.no_grad():
        after = {module: model.get_submodule(module)(torch.eye(weight.shape[1])).T for module, weight in before.items()}
    save_expected(directory / f"{name}.expected.safetensors", before, after)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1])
    plain = {"target_modules": TARGETS, "task_type": "CAUSAL_LM"}
    peft(directory, "peft_lora", LoraConfig(r=4, lora_alpha=6, rank_pattern={"layers.1.mlp.down_proj": 2}, **plain))
    peft(directory, "peft_rslora", LoraConfig(r=4, lora_alpha=6, use_rslora=True, layers_to_transform=[1], **plain))
    peft(directory, "peft_dora", LoraConfig(r=4, lora_alpha=6, use_dora=True, **plain))
    peft(directory, "peft_lokr", LoKrConfig(r=1, alpha=3, decompose_factor=4, **plain))
    peft(directory, "peft_lokr_whole", LoKrConfig(r=4, alpha=6, decompose_factor=4, **plain))
    lycoris(directory, "lycoris_lora", network_module="lora", lora_dim=4, alpha=6)
    lycoris(directory, "lycoris_rslora", network_module="lora", lora_dim=4, alpha=6, rs_lora=True)
    lycoris(directory, "lycoris_dora", network_module="lora", lora_dim=4, alpha=6, weight_decompose=True, wd_on_out=True)
    lycoris(directory, "lycoris_lokr", network_module="lokr", lora_dim=1, alpha=3, factor=4)
    lycoris(directory, "lycoris_lokr_twice", network_module="lokr", lora_dim=1, alpha=3, factor=4, decompose_both=True)
    lycoris(directory, "lycoris_lokr_whole", network_module="lokr", lora_dim=8, alpha=4, factor=4)
    for config in directory.glob("*/adapter_config.json"):  # PEFT writes sets: their order changes from run to run
        content = json.loads(config.read_text())
        if isinstance(content["target_modules"], list):
            content["target_modules"].sort()
        config.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
