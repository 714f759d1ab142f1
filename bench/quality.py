#!/usr/bin/env python3
"""Is an adapter better where it is used if it was trained on the very quantised file? Measures held-out loss on quantised models.

usage: bench/quality.py PARENT.gguf TYPE... --train FILE --heldout FILE [--seeds 1 2 3] [--work DIR] [--json FILE] [-- FLAGS]

PARENT is an F32 model; llama.cpp's quantiser makes a child of each TYPE (Q4_K_M, ...). For each seed a LoRA is trained on the parent
and on each child, with the same data and FLAGS of `patina train-lm`. Each child's held-out loss, in `patina eval` and in llama.cpp:
with no adapter, with the parent's, with its own. Beside it the parent's own loss with its adapter, and the share of what
quantisation costs the parent's adapter that the child's own wins back:
  (child with parent's adapter - child with its own) / (child with parent's adapter - parent with its adapter)
What lies in DIR already is not done again. Run it with a Python that has llama-cpp-python, gguf, jinja2 and numpy.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys

import llama_cpp
from gguf import GGUFReader

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTEXT = 512
NONE, PARENTS, OWN = "none", "parent's", "own"


def quantise(parent, kind, child):
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + kind)
    unfinished = child.with_suffix(".part")
    if llama_cpp.llama_model_quantize(str(parent).encode(), str(unfinished).encode(), parameters) != 0:
        sys.exit(f"quality.py: llama.cpp cannot quantise {parent} to {kind}")
    unfinished.rename(child)


def type_counts(model):
    return dict(collections.Counter(tensor.tensor_type.name for tensor in GGUFReader(model).tensors).most_common())


def train(arguments, model, seed, out):
    if (out / "adapter_config.json").exists():
        return
    command = [arguments.patina, "train-lm", "--model", model, "--data", arguments.train, "--out", out, "--overwrite", "--seed",
               seed, "--context", arguments.context, "--save-every", "end", *arguments.flags]
    subprocess.run(list(map(str, command)), check=True, stderr=subprocess.DEVNULL)


def printed(command):
    return json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout)


def losses(arguments, model, adapter=None):
    """Held-out loss of a model, by program."""
    common = ["--context", arguments.context]
    ours = [arguments.patina, "eval", "--model", model, "--data", arguments.heldout, "--json", *common]
    theirs = [sys.executable, ROOT / "tools/llama_cpp_loss.py", model, arguments.heldout, *common]
    if adapter:
        ours += ["--adapter", adapter]
        theirs += ["--lora", adapter / "adapter.gguf"]
    patina, llama = printed(ours), printed(theirs)
    if patina["supervisedTokens"] != llama["supervisedTokens"]:
        sys.exit(f"quality.py: {arguments.heldout}: Patina sees {patina['supervisedTokens']} labels, llama.cpp {llama['supervisedTokens']}")
    return {"patina": patina["loss"], "llama.cpp": llama["loss"]}


def measured(arguments, work):
    """A row for each seed: losses of the parent with its adapter and of each child, by adapter."""
    children = {kind: work / f"{arguments.parent.stem}.{kind}.gguf" for kind in arguments.types}
    for kind, child in children.items():
        if not child.exists():
            quantise(arguments.parent, kind, child)
    bare = {name: losses(arguments, model) for name, model in {NONE: arguments.parent, **children}.items()}
    seeds = []
    for seed in arguments.seeds:
        adapters = {name: work / f"{arguments.parent.stem}.{name}.seed{seed}" for name in ["F32", *children]}
        for name, adapter in adapters.items():
            train(arguments, children.get(name, arguments.parent), seed, adapter)
        row = {"seed": seed, "parent": losses(arguments, arguments.parent, adapters["F32"])}
        for kind, child in children.items():
            row[kind] = {PARENTS: losses(arguments, child, adapters["F32"]), OWN: losses(arguments, child, adapters[kind])}
        print(json.dumps(row), flush=True)
        seeds.append(row)
    return {"parent": {"loss": bare[NONE]},
            "children": {kind: {"types": type_counts(child), "loss": bare[kind]} for kind, child in children.items()},
            "seeds": seeds}


def summary(result, program):
    """Lines of a table: means over the seeds; the difference with its standard deviation between them."""
    mean = lambda values: statistics.mean(values)
    rows = result["seeds"]
    parent = mean([row["parent"][program] for row in rows])
    yield f"{program}: parent {result['parent']['loss'][program]:.4f}, with its adapter {parent:.4f}"
    yield f"{'child':<8}{'no adapter':>12}{'parents':>10}{'its own':>10}{'difference':>20}{'won back':>10}"
    for kind, child in result["children"].items():
        parents, own = ([row[kind][which][program] for row in rows] for which in (PARENTS, OWN))
        differences = [a - b for a, b in zip(parents, own)]
        spread = f" +- {statistics.stdev(differences):.4f}" if len(rows) > 1 else ""
        won = mean(differences) / (mean(parents) - parent)
        child["summary"] = child.get("summary", {}) | {program: {"wonBack": won, "difference": mean(differences)}}
        yield (f"{kind:<8}{child['loss'][program]:>12.4f}{mean(parents):>10.4f}{mean(own):>10.4f}"
               f"{f'{mean(differences):.4f}{spread}':>20}{won:>10.0%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parent", type=pathlib.Path)
    parser.add_argument("types", nargs="+", metavar="TYPE")
    parser.add_argument("--train", type=pathlib.Path, required=True, help="data set to train on")
    parser.add_argument("--heldout", required=True, help="data set to measure: .txt, or .jsonl of messages")
    parser.add_argument("--context", type=int, default=CONTEXT)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "bench/results/quality")
    parser.add_argument("--patina", default=ROOT / "build/src/patina")
    parser.add_argument("--json", type=pathlib.Path)
    line, flags = (sys.argv[1:] + ["--"])[:(sys.argv[1:] + ["--"]).index("--")], sys.argv[1:]
    arguments = parser.parse_args(line)
    arguments.flags = flags[flags.index("--") + 1:] if "--" in flags else []
    arguments.work.mkdir(parents=True, exist_ok=True)
    result = measured(arguments, arguments.work)
    for program in ("patina", "llama.cpp"):
        print("\n" + "\n".join(summary(result, program)))
    for kind, child in result["children"].items():
        print(f"{kind}: " + ", ".join(f"{count} {name}" for name, count in child["types"].items()))
    digest = lambda path: hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    result |= {"flags": arguments.flags, "context": arguments.context,
               "files": {str(path): digest(path) for path in (arguments.parent, arguments.train, arguments.heldout)}}
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
