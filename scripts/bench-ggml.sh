#!/usr/bin/env bash
# Measures the change of integrations/ggml on this machine: writes integrations/ggml/bench/figures.json and the tables of
# docs/ggml.md. Wants a quiet machine for about a quarter of an hour. Arguments go to figures.py (--quick: tiny sizes).
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${1-} == --help || ${1-} == -h ]]; then
  exec python3 integrations/ggml/bench/figures.py --help
fi

scripts/fetch-ggml.sh
mapfile -t versions < <(scripts/fetch-ggml.sh --list)
folder=build-ggml/${versions[0]}
nice -n 19 cmake --build "$folder/build" -j2 --target products step >"$folder/bench.log" 2>&1 ||
  { tail -n 40 "$folder/bench.log" >&2; exit 1; }
exec python3 integrations/ggml/bench/figures.py "$@" "$folder"
