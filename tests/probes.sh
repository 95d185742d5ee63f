#!/usr/bin/env bash
# What the probes cost, in nanoseconds: per launch, synchronisation, context switch (of a tracked and of an unrelated
# process) and unrelated system call, then the kernel's own statistics per program. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "probes.sh: loading kernel programs needs root" >&2; exit 1; }
exec cargo run --release --quiet -p warpmeter-ebpf-tests --bin probed -- bench
