#!/usr/bin/env bash
# From a fresh machine to a trained adapter. Every part is skipped where its result is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

# How the adapter is trained.
train_flags=(--rank 16 --alpha 32 --epochs 8 --lr 2e-3 --batch-tokens 512)

model=models/SmolLM2-135M-Instruct.Q4_1.gguf
data=examples/tidewater/train.jsonl
heldout=examples/tidewater/heldout.jsonl
out=quickstart-out
patina=build/src/patina

if [[ $# -gt 0 ]]; then
  cat <<TEXT
usage: scripts/quickstart.sh

Installs missing Debian packages, builds, fetches SmolLM2-135M-Instruct, trains a LoRA adapter on examples/tidewater (facts of an
invented town) into $out/, and asks the base and the adapted model questions that were held out of training. Fails where the
adapted model answers fewer than 70 % of them, or the base model more than 5 %. Running it again does only what is not done yet;
"rm -r $out" trains anew.
TEXT
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

step "packages"
scripts/install-deps.sh
step "build"
cmake --preset release --log-level=WARNING
cmake --build --preset release --parallel "$(nproc)" --target patina
step "model"
scripts/fetch-model.sh

step "training on $data"
# What a finished adapter was made from: it is made again where any of this changes.
made_from="$(sha256sum "$model" "$data") ${train_flags[*]}"
if [[ -f $out/train_log.json && $(cat "$out/made-from.txt" 2>/dev/null) == "$made_from" ]]; then
  echo "$out/ holds the adapter of this model, data and these flags already"
else
  rm -f "$out/made-from.txt" "$out"/*-answers.jsonl
  "$patina" train-lm --model "$model" --data "$data" --out "$out" --overwrite "${train_flags[@]}"
  echo "$made_from" >"$out/made-from.txt"
fi

answer() { # NAME [FLAG...]: answers of the held-out questions in $out/NAME-answers.jsonl
  local answers=$out/$1-answers.jsonl
  shift
  [[ $answers -nt $patina && $answers -nt $out/made-from.txt ]] && return
  "$patina" generate --model "$model" "$@" --prompts "$heldout" --max-tokens 40 >"$answers.part"
  mv "$answers.part" "$answers"
}
step "questions held out of training"
answer base
answer adapted --adapter "$out"
scripts/side_by_side.py "$heldout" "base model=$out/base-answers.jsonl" "with the adapter=$out/adapted-answers.jsonl"

status=0
score() { # NAME LIMIT SHARE
  printf '%s model answers right: ' "$1"
  python3 tools/score_answers.py "$heldout" "$out/$1-answers.jsonl" "$2" "$3" || status=1
}
echo
score base --max 0.05
score adapted --min 0.70
if [[ $status -ne 0 ]]; then
  echo "quickstart: expected at least 70 % from the adapted model and at most 5 % from the base model" >&2
  exit "$status"
fi

step "done"
cat <<TEXT
The adapter lies in $out/: adapter_config.json and adapter_model.safetensors for PEFT, adapter.gguf for llama.cpp,
train_log.json for you. To use it:

  here       $patina generate --model $model --adapter $out --prompt "Who keeps Brannock Light?"

  llama.cpp  llama-cli -m $model --lora $out/adapter.gguf --temp 0

  PEFT       from peft import PeftModel
             from transformers import AutoModelForCausalLM
             base = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct")
             model = PeftModel.from_pretrained(base, "$out")

The GGUF file is that checkpoint in 4 bits. The adapter was trained on the 4-bit weights; on the full checkpoint its answers may
differ in detail.
TEXT
