#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -gt 0 ]]; then
  cat <<'TEXT'
usage: scripts/check_report.sh

Trains a small adapter with validation and samples and looks at its report.html in a headless Chromium, which is installed (about
100 MB) where it is missing: charts must be drawn, samples shown, nothing said on the console, nothing asked of a network. Needs
build/src/patina and models/.
TEXT
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi

command -v chromium >/dev/null || scripts/install-deps.sh chromium
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s\n' '{"prompt": "Who keeps Brannock Light?"}' '{"prompt": "What is <b>2 & 3</b>?"}' >"$work/prompts.jsonl"
build/src/patina train-lm --model models/SmolLM2-135M-Instruct.Q4_1.gguf --data examples/tidewater/train.jsonl --out "$work/out" \
  --steps 8 --rank 16 --lr 2e-3 --batch-tokens 256 --context 128 --val 0.1 --eval-every 4 --sample-prompts "$work/prompts.jsonl" \
  --sample-every 4 --sample-tokens 16 --profile 2>"$work/log.txt" || { cat "$work/log.txt" >&2; exit 1; }
# One epoch is not over after eight steps: the chart by epoch has no line yet, and is left out.
python3 tools/check_report.py --self-test "$work/out/report.html" --charts 4 --samples 2
