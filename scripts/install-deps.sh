#!/usr/bin/env bash
# Installs the Debian 12 packages that Patina is built and tested with: those that are missing, and nothing else.
set -euo pipefail

if [[ ${1-} == -* ]]; then
  echo "usage: scripts/install-deps.sh [PACKAGE...]"
  echo "Installs missing Debian packages, those named too; needs root or sudo only where one is missing."
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi

packages=(
  cmake ninja-build g++ ccache pkg-config                                      # build
  libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev libpcre2-dev           # libraries of the program
  libgtest-dev clang-format-14                                                 # tests, format check
  libbenchmark-dev libopenblas-dev                                             # benchmarks only
  python3 python3-venv python3-pip                                             # scripts and tools
  "$@"
)

if ! command -v dpkg-query >/dev/null; then
  echo "install-deps: no dpkg here; install what these Debian packages hold: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "install-deps: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install-deps: not root and no sudo; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "install-deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
