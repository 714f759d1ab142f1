#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/test.sh [--full]

Installs missing Debian packages, checks the sources (order of includes, format, data set), builds into build/, fetches the test
model into models/, and runs every test. Fails where anything fails, where a test is skipped, and where there is none.

  --full   also look at a run's report.html in a headless Chromium (scripts/check_report.sh), build and run every test with address
           and undefined-behaviour sanitizers (build-asan/), and the tests of the kernels for 64-bit ARM under qemu (build-arm64/,
           scripts/test-arm64.sh); takes several times as long
  --help   this text
TEXT
}

full=false
for argument in "$@"; do
  case $argument in
    --full) full=true ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

build_and_test() { # PRESET DIRECTORY
  step "build: $1"
  cmake --preset "$1" --log-level=WARNING
  cmake --build --preset "$1" --parallel "$(nproc)"
  step "tests: $1"
  local results=$PWD/$2/test-results.xml status=0
  rm -f "$results"
  # Tests use threads of their own: two at a time, whatever the machine.
  ctest --preset "$1" -j2 --no-tests=error --progress --output-junit "$results" || status=$?
  scripts/summarise_tests.py "$results" | tee "$2/test-summary.txt"
  return "$status"
}

step "packages"
scripts/install-deps.sh
step "sources"
scripts/check_includes.py --self-test
scripts/check_includes.py
scripts/format.sh --check
python3 tools/check_dataset.py examples/tidewater --facts 50 --heldout 30
step "model"
scripts/fetch-model.sh

build_and_test release build
if $full; then
  step "report in a browser"
  scripts/check_report.sh
  build_and_test asan+ubsan build-asan
  step "64-bit ARM"
  scripts/test-arm64.sh
fi
