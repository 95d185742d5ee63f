#!/usr/bin/env bash
# What the daemon and its probes cost a training-like program: the time of a step with them and without, in pairs one
# right after the other, as a ratio with its spread. Needs root, or there are no probes.
#
# usage: tests/interference.sh [PAIRS] [SECONDS]      15 pairs of runs of 3 seconds by default
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-15} seconds=${2:-3}
target=${CARGO_TARGET_DIR:-target}
release=$target/release

cargo build --quiet --release -p warpmeter -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p warpmeter-workload
work=$(mktemp -d) daemon=
stop() {
  [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null; } || true
  daemon=
}
trap 'stop; rm -rf "$work"' EXIT
printf '[[gpu]]\nmodel = "H100"\n' >"$work/node.toml"
"$release/simgpu" create --scenario "$work/node.toml" --state "$work/node" --libraries "$work/lib" >/dev/null
export SIMGPU_STATE=$work/node
printf '[http]\nlisten = "127.0.0.1:0"\n[nvidia]\nlibraries = ["%s"]\n[host]\ndev = "%s"\n[control]\nsocket = ""\n[pods]\nsource = "none"\n[bpf]\nenabled = true\n' \
  "$work/lib" "$work/node/dev" >"$work/config.toml"

# Forty kernels of a quarter of a millisecond a step, half a millisecond of host work, an upload; synchronised once.
step() {
  "$release/warpmeter-workload" trainer --library "$work/lib/libcuda.so.1" --seconds "$seconds" --blocking-sync \
    --kernels 40 --kernel-us 250 --host-us 500 --upload-kib 256 --report "$work/report"
  sed -E 's/.*"start_ns":([0-9]+),"end_ns":([0-9]+),"steps":([0-9]+).*/\1 \2 \3/' "$work/report" |
    awk '{ printf "%.6f\n", ($2 - $1) / 1e9 / $3 }'
}
with() {
  "$release/warpmeter" run --config "$work/config.toml" >/dev/null 2>"$work/log" &
  daemon=$!
  # Long enough for the probes to be attached to the library at the first sight of it.
  sleep 2
  step
  stop
}

step >/dev/null
for ((pair = 0; pair < pairs; pair++)); do
  # Each goes first in turn, so that a drift of the machine falls on both.
  if ((pair % 2)); then a=$(with) b=$(step); else b=$(step) a=$(with); fi
  echo "$a $b"
done | awk '{ print $1 / $2, $1, $2 }' | sort -n | awk '
  { ratio[NR] = $1; with += $2; without += $3 }
  END {
    printf "step time with ÷ without: median %.4f, from %.4f to %.4f (quartiles %.4f, %.4f), %d pairs\n",
      ratio[int((NR + 1) / 2)], ratio[1], ratio[NR], ratio[int((NR + 3) / 4)], ratio[int((3 * NR + 3) / 4)], NR
    printf "mean step: %.3f ms with, %.3f ms without\n", with / NR * 1000, without / NR * 1000
  }'
