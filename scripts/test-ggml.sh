#!/usr/bin/env bash
# Proves the change of integrations/ggml on the newest pinned ggml release; with --all on the older ones too.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1-} in
  "" | --all) mapfile -t versions < <(scripts/fetch-ggml.sh --list) ;;
  *)
    echo "usage: scripts/test-ggml.sh [--all]"
    [[ $1 == --help || $1 == -h ]] && exit 0
    exit 2
    ;;
esac

[[ ${1-} == --all ]] || versions=("${versions[0]}")
scripts/fetch-ggml.sh ${1+"$1"}

compile() { # FOLDER TARGET...
  nice -n 19 cmake --build "$1/build" -j2 --target "${@:2}" >"$1/tests.log" 2>&1 ||
    { tail -n 40 "$1/tests.log" >&2; return 1; }
}

# The change without its test of contiguity, to show that the tests need it.
unguarded() ( # FOLDER
  [[ $1/unguarded -nt $1/built ]] && exit
  source=$1/tree/src/ggml.c
  cp "$source" "$1/ggml.c.guarded"
  trap 'mv "$1/ggml.c.guarded" "$source" && touch "$source" && compile "$1" ggml' EXIT
  sed -i 's/!ggml_is_contiguous(grad)) {$/false) {/' "$source"
  ! cmp -s "$source" "$1/ggml.c.guarded" || { echo "test-ggml: the guard was not found" >&2; exit 1; }
  compile "$1" ggml
  rm -rf "$1/unguarded"
  mkdir "$1/unguarded"
  find "$1/build/ggml" -name 'libggml*.so*' -exec cp -a -t "$1/unguarded" {} +
)

for version in "${versions[@]}"; do
  folder=build-ggml/$version
  echo "test-ggml: ggml of llama-cpp-python $version"
  unguarded "$folder"
  compile "$folder" programs
  nice -n 19 python3 integrations/ggml/tests/run_tests.py "$folder"
done
