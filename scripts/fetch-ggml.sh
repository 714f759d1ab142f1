#!/usr/bin/env bash
# Puts ggml into build-ggml/VERSION/, from the source distribution of llama-cpp-python on PyPI, and builds its CPU backend
# twice:
#   source/     ggml as released (with its licence and its own backend tests)
#   tree/       a copy with the change of integrations/ggml
#   untouched/  libraries built from source/
#   changed/    libraries built from tree/: the change rebuilds one file
set -euo pipefail
cd "$(dirname "$0")/.."

# version of llama-cpp-python, SHA-256 of its source distribution; the newest first
versions=(
  "0.3.36 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
  "0.3.16 34ed0f9bd9431af045bb63d9324ae620ad0536653740e9bb163a2e1fcb973be6"
  "0.3.8 31c91323b555c025a76a30923cead9f5695da103dd68c15cdbb4509b17f0ed77"
)

usage() {
  cat <<TEXT
usage: scripts/fetch-ggml.sh [--all | --list]

Fetches and builds the newest pinned ggml; with --all the older ones too. What is there already is left. --list names the
versions.
GGML_CUDA=ON in the environment builds the CUDA backend as well, for the GPU of this machine.
TEXT
}

wanted=("${versions[0]}")
case ${1-} in
  "") ;;
  --all) wanted=("${versions[@]}") ;;
  --list) printf '%s\n' "${versions[@]%% *}"; exit 0 ;;
  *) usage; [[ $1 == --help || $1 == -h ]] && exit 0; exit 2 ;;
esac

if [[ ${GGML_CUDA-OFF} == ON ]] && ! { command -v nvcc && nvidia-smi; } >/dev/null 2>&1; then
  echo "fetch-ggml: GGML_CUDA=ON needs nvcc and a GPU; without one see scripts/prepare-ggml-gpu.sh" >&2
  exit 1
fi

say() { echo "fetch-ggml: $*"; }

python=python3
work=
trap '[[ -z $work ]] || rm -rf "$work"' EXIT

fetch() { # VERSION SHA256 FOLDER
  mkdir -p build-ggml
  work=$(mktemp -d build-ggml/fetch.XXXXXX) # beside the target, so that the last step is a rename
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    python3 -m venv "$work/venv"
    python=$work/venv/bin/python
  fi
  say "downloading llama-cpp-python $1 from PyPI"
  echo "llama-cpp-python==$1 --hash=sha256:$2" >"$work/requirements.txt"
  "$python" -m pip download --quiet --no-deps --no-cache-dir --no-binary llama-cpp-python --require-hashes \
    --dest "$work" --requirement "$work/requirements.txt"
  local archive=$work/llama_cpp_python-$1.tar.gz
  echo "$2  $archive" | sha256sum --check --quiet
  mkdir "$work/source"
  tar -xzf "$archive" -C "$work/source" --strip-components=3 --wildcards \
    '*/vendor/llama.cpp/ggml' '*/vendor/llama.cpp/LICENSE' '*/vendor/llama.cpp/tests/test-backend-ops.cpp'
  mkdir -p "$(dirname "$3")"
  mv "$work/source" "$3"
  rm -rf "$work"
  work=
  python=python3
}

build() { # FOLDER-OF-VERSION COPY
  nice -n 19 cmake -S integrations/ggml -B "$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_TREE="$PWD/$1/tree" \
    -DGGML_CUDA="${GGML_CUDA-OFF}" >"$1/configure.log" || { cat "$1/configure.log" >&2; return 1; }
  nice -n 19 cmake --build "$1/build" -j2 --target ggml >"$1/$2.log" 2>&1 ||
    { tail -n 40 "$1/$2.log" >&2; return 1; }
  rm -rf "$1/$2"
  mkdir "$1/$2"
  find "$1/build/ggml" -name 'libggml*.so*' -exec cp -a -t "$1/$2" {} +
}

for entry in "${wanted[@]}"; do
  read -r version sha256 <<<"$entry"
  folder=build-ggml/$version
  [[ -d $folder/source ]] || fetch "$version" "$sha256" "$folder/source"

  mark="$(cat integrations/ggml/{block.c,statement.c,CMakeLists.txt} | sha256sum) ${GGML_CUDA-OFF}"
  if [[ -f $folder/built && $(<"$folder/built") == "$mark" ]]; then
    say "$folder is there"
    continue
  fi
  rm -f "$folder/built"
  [[ -d $folder/tree ]] || cp -a "$folder/source/ggml" "$folder/tree"
  # Written only where they differ, so that nothing is compiled for nothing.
  cmp -s "$folder/source/ggml/src/ggml.c" "$folder/tree/src/ggml.c" ||
    cp "$folder/source/ggml/src/ggml.c" "$folder/tree/src/ggml.c"
  say "building ggml of $version as it is"
  build "$folder" untouched
  python3 integrations/ggml/apply.py "$folder/tree"
  say "building it with the change"
  build "$folder" changed
  say "compiled for the change: $(grep -c 'Building C' "$folder/changed.log") file"
  echo "$mark" >"$folder/built"
done
