#!/usr/bin/env bash
# Builds what the accuracy study needs and runs it: run.sh study SEED REPEATS, or run.sh quick [SEED].
#
# The study installs PyTorch once, into $ACCURACY_TORCH (target/accuracy-torch; 1.5 GiB, from PyPI), writes its raw result
# to target/accuracy.jsonl and its tables into docs/accuracy.md. The quick part takes neither, and two minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
cargo build --quiet --release -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
case $1 in
  study)
    torch=${ACCURACY_TORCH:-$target/accuracy-torch}
    [ -e "$torch/env" ] || tests/accuracy/torch.sh "$torch"
    status=0
    tests/accuracy/accuracy.py --seed "$2" --repeats "$3" --torch "$torch" --out "$target/accuracy.jsonl" || status=$?
    tests/accuracy/accuracy.py --document docs/accuracy.md --out "$target/accuracy.jsonl"
    exit $status
    ;;
  quick)
    exec tests/accuracy/accuracy.py --quick --seed "${2:-1}" --repeats 1 --seconds 5 --out "$target/accuracy-quick.jsonl"
    ;;
esac
