#!/usr/bin/env bash
# Independent readers of the simulated driver: nvidia-ml-py, gpustat and nvitop must see what a node truly does.
# Fails if any of their assertions does. The packages go into a virtual environment under the target directory.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/readers

cargo build --quiet --release -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import pynvml, gpustat, nvitop' 2>/dev/null ||
  "$venv/bin/pip" install --quiet --disable-pip-version-check nvidia-ml-py gpustat nvitop

exec "$venv/bin/python" tests/simgpu/readers.py --built "$target/release"
