#!/usr/bin/env bash
# Builds what the accuracy study needs and runs it: run.sh study SEED REPEATS, run.sh quick [SEED], or run.sh ci.
#
# The study installs PyTorch once, into $ACCURACY_TORCH (target/accuracy-torch; 1.5 GiB, from PyPI), writes its raw result
# to target/accuracy.jsonl and its tables into docs/accuracy.md. The quick part takes neither, and two minutes. As part
# of CI it runs what the tests have built, and only a leading cause that is wrong in three runs is a fault: other programs of
# a machine that builds cost points.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
profile=(--release)
python3 tests/accuracy/test_judge.py --quiet
[ "$1" != ci ] || profile=()
cargo build --quiet "${profile[@]}" -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
case $1 in
  study)
    torch=${ACCURACY_TORCH:-$target/accuracy-torch}
    [ -e "$torch/env" ] || tests/accuracy/torch.sh "$torch"
    status=0
    rm -f "$target/accuracy.jsonl"
    tests/accuracy/accuracy.py --seed "$2" --repeats "$3" --torch "$torch" --out "$target/accuracy.jsonl" || status=$?
    # Where the study was skipped there is no result, and an old one is none of this one.
    [ ! -e "$target/accuracy.jsonl" ] || tests/accuracy/accuracy.py --document docs/accuracy.md --out "$target/accuracy.jsonl"
    exit $status
    ;;
  quick)
    exec tests/accuracy/accuracy.py --quick --seed "${2:-1}" --repeats 1 --seconds 5 --out "$target/accuracy-quick.jsonl"
    ;;
  ci)
    export ACCURACY_PROFILE=debug
    exec tests/accuracy/accuracy.py --quick --leaders --repeats 1 --seconds 4 --out "$target/accuracy-ci.jsonl"
    ;;
esac
