#!/usr/bin/env bash
# Prepares build-ggml/gpu: ggml with the change and its CUDA backend for one architecture (sm_90: H100, H200), stripped,
# without the flash-attention kernels, and the programs that check and time it. Needs nvcc, no GPU; takes long on few
# cores. It then runs on a machine with a GPU and CUDA's run-time libraries:
#   bash build-ggml/gpu/run.sh [FOLDER FOR figures-gpu.json]
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -gt 1 || ${1-} == -* ]]; then
  echo "usage: scripts/prepare-ggml-gpu.sh [ARCHITECTURE]    prepares build-ggml/gpu, for 90 (sm_90) unless said otherwise"
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi
architecture=${1-90}
most_bytes=$((60 << 20))

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[[ -x $nvcc ]] || { echo "prepare-ggml-gpu: no nvcc here" >&2; exit 1; }

scripts/fetch-ggml.sh
mapfile -t versions < <(scripts/fetch-ggml.sh --list)
folder=build-ggml/${versions[0]}
build=$folder/build-cuda-$architecture
# The processor of the other machine is not known: no GGML_NATIVE. The driver's library, libcuda.so.1, is there and not here.
nice -n 19 cmake -S integrations/ggml -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_TREE="$PWD/$folder/tree" \
  -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$architecture" \
  -DGGML_CUDA=ON -DGGML_CUDA_FA=OFF -DGGML_CUDA_NCCL=OFF -DGGML_NATIVE=OFF -DCMAKE_CUDA_FLAGS="-Xfatbin=-compress-all" \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,--unresolved-symbols=ignore-in-shared-libs"
nice -n 19 cmake --build "$build" -j2 --target bounds cases products step

out=build-ggml/gpu
rm -rf "$out"
mkdir -p "$out/changed" "$out/build/bin"
find "$build/ggml" -name 'libggml*.so.0' -exec cp -L -t "$out/changed" {} +
cp "$build"/bin/{bounds,cases,products,step} "$out/build/bin"
strip "$out"/changed/* "$out"/build/bin/*
echo "${versions[0]}" >"$out/version"
cat >"$out/run.sh" <<'RUN'
#!/usr/bin/env bash
# Checks every gradient on the first GPU against double precision, then measures. Run from the root of the repository.
set -euo pipefail
export LD_LIBRARY_PATH=$PWD/build-ggml/gpu/changed${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for type in f32 f16 bf16 q8_0 q4_0; do
  GGML_BACKWARD_MM=1 build-ggml/gpu/build/bin/bounds "$type" gpu
done
python3 integrations/ggml/bench/figures.py --gpu --json "${1-.}/figures-gpu.json" build-ggml/gpu
RUN
bytes=$(du -sb "$out" | cut -f1)
((bytes <= most_bytes)) || { echo "prepare-ggml-gpu: $out has $bytes bytes, more than $most_bytes" >&2; exit 1; }
echo "prepare-ggml-gpu: $out, $bytes bytes; on the machine with the GPU: bash $out/run.sh"
