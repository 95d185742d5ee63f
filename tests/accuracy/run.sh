#!/usr/bin/env bash
# Builds what the accuracy study needs and runs it: run.sh study SEED REPEATS SECONDS, run.sh quick [SEED], or run.sh ci.
#
# The study installs PyTorch once, into $ACCURACY_TORCH (target/accuracy-torch; 1.5 GiB, from PyPI), writes its raw result
# to target/accuracy.jsonl (with RESUME=1 it goes on with what is there) and, once it has all of its runs, its tables into docs/accuracy.md. The quick part takes neither,
# and two minutes. As part of CI it runs what the tests have built, and only a leading cause that is wrong in three runs is a
# fault: other programs of a machine that builds cost points.
#
# A machine that lacks what the study needs (often cgroup version 1: README.md says why it is that one) skips it, in large
# letters; with WARPMETER_NO_SKIP=1 that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
profile=(--release)
python3 -m unittest discover --quiet --start-directory tests/accuracy
[ "$1" != ci ] || profile=()
cargo build --quiet "${profile[@]}" -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
status=0
case $1 in
  study)
    torch=${ACCURACY_TORCH:-$target/accuracy-torch}
    [ -e "$torch/env" ] || tests/accuracy/torch.sh "$torch"
    [ -n "${RESUME:-}" ] || rm -f "$target/accuracy.jsonl"
    tests/accuracy/accuracy.py --seed "$2" --repeats "$3" --seconds "$4" --torch "$torch" --out "$target/accuracy.jsonl" ${RESUME:+--resume} || status=$?
    # 1: it was run, and something is wrong; else nothing was. A part of a study, as one that was ended leaves it, is refused.
    case $status in
      0 | 1) tests/accuracy/accuracy.py --document docs/accuracy.md --out "$target/accuracy.jsonl" || status=1 ;;
    esac
    ;;
  quick)
    tests/accuracy/accuracy.py --quick --seed "${2:-1}" --repeats 1 --seconds 5 --out "$target/accuracy-quick.jsonl" || status=$?
    ;;
  ci)
    export ACCURACY_PROFILE=debug
    tests/accuracy/accuracy.py --quick --leaders --repeats 1 --seconds 4 --out "$target/accuracy-ci.jsonl" || status=$?
    ;;
  *)
    echo "run.sh: neither study nor quick nor ci: $1" >&2
    exit 64
    ;;
esac
# 3: skipped, and said so.
[ "$status" = 3 ] || exit "$status"
