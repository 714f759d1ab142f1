#!/usr/bin/env python3
"""Measures what the change gains and writes figures.json beside this file, and from it the tables of docs/ggml.md.

figures.py build-ggml/VERSION            measures (about 15 minutes on two quiet cores), writes figures.json and the tables
figures.py --tables                      writes the tables again from figures.json
figures.py --quick build-ggml/VERSION    tiny sizes, to see that it runs: prints the tables and writes nothing
figures.py --gpu ...                     the same on the first GPU (a build with GGML_CUDA=ON)
figures.py --json FILE ...               writes FILE instead, and no tables
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
JSON = {"cpu": HERE / "figures.json", "gpu": HERE / "figures-gpu.json"}
PAGE = HERE.parent.parent.parent / "docs/ggml.md"
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_K")
# K, N. On a CPU one product of the small llama below and q of Qwen3-4B; on a GPU Qwen3-4B's q, k and v, o, gate and up,
# down.
SHAPES = {
    "cpu": ((512, 1536), (2560, 4096)),
    "gpu": ((2560, 4096), (2560, 1024), (4096, 2560), (2560, 9728), (9728, 2560)),
}
TOKENS = {"cpu": (512, 2048), "gpu": (512, 2048, 2944)}
STEP_TOKENS = 512
STEP_ROUNDS = 2  # each runs every type with the gate off and on, so that a drift meets both


def run(root, library, program, *arguments, gate="0"):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("GGML_BACKWARD_MM", "OMP_"))
    }
    if not (root / library).is_dir():
        library = "changed"  # with the gate off the graph is the same, node for node
    path = os.environ.get("LD_LIBRARY_PATH")
    environment.update(LD_LIBRARY_PATH=str(root / library) + (f":{path}" if path else ""), GGML_BACKWARD_MM=gate)
    command = [str(root / "build/bin" / program), *map(str, arguments)]
    print("  " + " ".join(command[1:]) + f" gate {gate}", file=sys.stderr)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def measure(root, device, quick):
    threads = len(os.sched_getaffinity(0))
    shapes, tokens, repeats, steps = (((256, 256),), (16,), 1, 1) if quick else (SHAPES[device], TOKENS[device], 5, 3)
    products = []
    for k, n in shapes:
        for t in tokens:
            products += run(root, "changed", "products", k, n, t, repeats, threads, device, *TYPES)
    rounds = []
    for _ in range(1 if quick else STEP_ROUNDS):
        for kind in TYPES:
            for library, gate in (("untouched", "0"), ("changed", "1")):
                step = run(
                    root, library, "step", kind, 16 if quick else STEP_TOKENS, steps, threads, device, gate=gate
                )[0]
                rounds.append({"gate": gate, **step})
    gpu = (
        subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
        ).stdout.strip()
        if device == "gpu"
        else None
    )
    version = root / "version"
    return {
        "llama_cpp_python": version.read_text().strip() if version.exists() else root.name,
        "processor": processor(),
        "gpu": gpu,
        "threads": threads,
        "products": products,
        "steps": rounds,
    }


def cell(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def ratio(above, below):
    return None if above is None or below is None else above / below


def product_table(figures):
    rows = [
        "| K x N | T | type | forward ms | outer product ms | product ms | gain | copy alone ms | "
        "strided: outer product ms | strided: product, gradient copied ms | gain |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    keys = list(dict.fromkeys((row["K"], row["N"], row["T"], row["type"]) for row in figures["products"]))
    for key in keys:
        ms = {
            row["way"]: row["ms"] for row in figures["products"] if (row["K"], row["N"], row["T"], row["type"]) == key
        }
        k, n, t, kind = key
        times = [ms[way] for way in ("forward", "outprod", "product")]
        rows.append(
            f"| {k} x {n} | {t} | {kind} | "
            + " | ".join(map(cell, times))
            + f" | {cell(ratio(ms['outprod'], ms['product']), '{:.1f}x')} | {cell(ms['copy'])} | "
            f"{cell(ms['outprod_strided'])} | {cell(ms['product_strided'])} | {cell(ratio(ms['outprod_strided'], ms['product_strided']), '{:.1f}x')} |"
        )
    return rows


def choice_table(figures):
    """What the change does for F16 and BF16, beside the other choice."""
    rows = ["| K x N | T | type | the change: ms | the other choice | ms |", "|---|---|---|---|---|---|"]
    for row in figures["products"]:
        other = {"product_in_type": "product in F16", "product_in_f32": "copied to F32"}.get(row["way"])
        if other:
            chosen = next(
                r
                for r in figures["products"]
                if r["way"] == "product" and all(r[key] == row[key] for key in ("K", "N", "T", "type"))
            )
            rows.append(
                f"| {row['K']} x {row['N']} | {row['T']} | {row['type']} | {cell(chosen['ms'])} | {other} | {cell(row['ms'])} |"
            )
    return rows


def step_table(figures):
    rows = [
        "| base | outer product: tokens/s | product: tokens/s | gain | scratch MB, before and after | "
        "loss after the same steps, before and after | converted, kept |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(step["type"] for step in figures["steps"]):
        off, on = (
            [step for step in figures["steps"] if step["type"] == kind and step["gate"] == gate] for gate in ("0", "1")
        )
        speeds = [[step["tokens"] / step["ms"] * 1e3 if "ms" in step else None for step in side] for side in (off, on)]
        before, after = (statistics.median(side) if None not in side else None for side in speeds)
        gain = None if None in speeds[0] or None in speeds[1] else statistics.median(b / a for a, b in zip(*speeds))

        def both(key, form):
            return ", ".join(form(side[0][key]) if key in side[0] else "-" for side in (off, on))

        mega = lambda value: f"{value / 1e6:.0f}"
        loss = lambda value: f"{value:.4f}"
        rows.append(
            f"| {kind} | {cell(before, '{:.0f}') if before else 'not supported'} | {cell(after, '{:.0f}')} | {cell(gain, '{:.2f}x')} | {both('scratch_bytes', mega)} | "
            f"{both('last_loss', loss)} | {on[0].get('converted', '-')}, {on[0].get('kept', '-')} |"
        )
    return rows


def tables(figures):
    where = figures["gpu"] or f"{figures['processor']}, {figures['threads']} threads"
    said = f"{where}; ggml of llama-cpp-python {figures['llama_cpp_python']}."
    return {
        "products": [said, "", *product_table(figures)],
        "choices": [said, "", *choice_table(figures)],
        "steps": [said, "", *step_table(figures)],
    }


def write_page(device, parts):
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        begin, end = (f"<!-- {device} {name} {edge} -->" for edge in ("begin", "end"))
        if begin not in page:
            page += f"\n{begin}\n{end}\n"
        head, tail = page.split(begin)[0], page.split(end)[1]
        page = head + begin + "\n" + "\n".join(lines) + "\n" + end + tail
    PAGE.write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("root", nargs="?", type=pathlib.Path, metavar="build-ggml/VERSION")
    arguments = parser.parse_args()
    device = "gpu" if arguments.gpu else "cpu"
    if arguments.tables == (arguments.root is not None):
        parser.error("either --tables or the folder of a built version")
    if arguments.tables:
        write_page(device, tables(json.loads(JSON[device].read_text())))
        return
    figures = measure(arguments.root.resolve(), device, arguments.quick)
    if arguments.quick:
        print("\n".join(line for lines in tables(figures).values() for line in lines))
        return
    (arguments.json or JSON[device]).write_text(json.dumps(figures, indent=1) + "\n")
    if not arguments.json:
        write_page(device, tables(figures))


if __name__ == "__main__":
    main()
