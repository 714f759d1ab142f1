#!/usr/bin/env bash
# Formats the C++ sources in place; with --check changes nothing and fails where a file is not formatted. clang-format 14, because
# other versions lay out the same code differently.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1-} in
  "") mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *)
    echo "usage: scripts/format.sh [--check]"
    [[ $1 == --help || $1 == -h ]] && exit 0
    exit 2
    ;;
esac
mapfile -t files < <(find src tests integrations -name '*.h' -o -name '*.cc' | sort)
clang-format-14 "${mode[@]}" "${files[@]}"
echo "format: ${#files[@]} files"
