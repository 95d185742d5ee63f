#!/usr/bin/env bash
# Theoretical occupancy beside NVIDIA's own calculator: `cuda_occupancy.h` of the CUDA runtime's package on PyPI, which is
# fetched, compiled and never kept. Fails if any of a million launches has another number of blocks there.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
scratch=$target/occupancy
mkdir -p "$scratch"

header=$(find "$scratch" -name cuda_occupancy.h | head -1)
if [ -z "$header" ]; then
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$scratch/package" nvidia-cuda-runtime
  header=$(find "$scratch" -name cuda_occupancy.h | head -1)
fi
g++ -O2 -I "$(dirname "$header")" -o "$scratch/reference" tests/occupancy/reference.cpp
cargo build --quiet --release -p warpmeter-core --example occupancies
"$target/release/examples/occupancies" | "$scratch/reference"
