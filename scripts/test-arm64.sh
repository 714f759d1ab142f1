#!/usr/bin/env bash
# Tests the kernels on 64-bit ARM without such a machine: cross-builds into build-arm64/ and runs test programs under qemu.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/test-arm64.sh

Installs Debian's cross-compiler for 64-bit ARM and qemu where they are missing, unpacks the ARM libraries into
build-arm64/sysroot (nothing of the machine's own packages changes), builds, and runs the tests of decoding, kernels, ops
and graphs under qemu, and a whole training run of a tiny model. The same golden numbers, and the same bytes of the trained
adapter, as on x86-64 must come out.
TEXT
}
if [[ $# -gt 0 ]]; then
  usage
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi

scripts/install-deps.sh g++-aarch64-linux-gnu qemu-user-static

build=$PWD/build-arm64
if [[ ! -e $build/sysroot/done ]]; then
  rm -rf "$build/sysroot" "$build/apt"
  mkdir -p "$build"/sysroot "$build"/apt/{lists/partial,cache/archives/partial,debs}
  # Lists and a package state of its own: to add ARM to the machine's architectures would upgrade packages at random.
  apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    -o Dir::State="$build/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$build/apt/cache")
  "${apt[@]}" update
  (cd "$build/apt/debs" && "${apt[@]}" download libhwy-dev libhwy1 libfmt-dev libfmt9 libpcre2-dev libpcre2-8-0 libgtest-dev \
    nlohmann-json3-dev libcli11-dev)
  for package in "$build"/apt/debs/*.deb; do dpkg-deb -x "$package" "$build/sysroot"; done
  touch "$build/sysroot/done"
fi

rooms=(base tensor quant ops backend graph)
cmake --preset arm64 --log-level=WARNING
cmake --build --preset arm64 --parallel "$(nproc)" --target "${rooms[@]/#/test_}" test_train
failed=0
# These watch which pages of a file the kernel holds; qemu passes no advice on pages on to it.
of_the_kernel=StreamTest.PagesComeAndGoWithTheRun:StreamTest.ARunLeftInItsMiddleIsTakenUpByTheNext
of_the_kernel+=:HeadStreamTest.LargeHeadPassesThroughTheWindow
for room in "${rooms[@]}"; do
  printf '== test_%s under qemu (after %d s)\n' "$room" "$SECONDS"
  qemu-aarch64-static -L /usr/aarch64-linux-gnu "$build/tests/test_$room" --gtest_brief=1 --gtest_filter="-$of_the_kernel" || failed=1
done
printf '== a whole run under qemu (after %d s)\n' "$SECONDS"
qemu-aarch64-static -L /usr/aarch64-linux-gnu "$build/tests/test_train" --gtest_filter='Invariance.EveryMachine*' || failed=1
exit $failed
