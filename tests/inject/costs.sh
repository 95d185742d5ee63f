#!/usr/bin/env bash
# What the injected library costs, as a table.
#
# usage: tests/inject/costs.sh [ROUNDS] [SECONDS]          on the simulated driver: 5 rounds of 12 seconds by default
#        tests/inject/costs.sh real ROUNDS COMMAND…        on a real GPU: how long COMMAND takes without and with it
#
# On the simulated driver a program launches kernels as fast as it can, 500 between two waits. Records cost there what
# the simulator's own CUPTI takes, not NVIDIA's; what the table has of this library is its own: the time of its thread
# by its own account, and memory. Only the second form says what a program loses.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
release=$target/release
library=${WARPMETER_INJECT_LIBRARY:-$release/libwarpmeter_inject.so}

# The median of the numbers in a column of those lines that begin with a word.
median() {
  awk -v word="$1" -v column="$2" '$1 == word { print $column }' "$3" | sort -g |
    awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1:-}" = real ]; then
  rounds=$2
  shift 2
  [ -f "$library" ] || { echo "costs.sh: no $library: cargo build --release -p warpmeter-inject" >&2; exit 1; }
  for ((round = 0; round < rounds; round++)); do
    for how in without 1/1 1/10; do
      begin=$(date +%s%N)
      if [ "$how" = without ]; then
        "$@" >"$work/output"
      else
        CUDA_INJECTION64_PATH=$library WARPMETER_INJECT_SAMPLE=$how "$@" >"$work/output"
      fi
      echo "$how $((($(date +%s%N) - begin) / 1000000))" >>"$work/times"
    done
  done
  without=$(median without 2 "$work/times")
  for how in without 1/1 1/10; do
    awk -v how="$how" -v ms="$(median "$how" 2 "$work/times")" -v without="$without" \
      'BEGIN { printf "%-8s median %9.0f ms, %.4f of that without\n", how, ms, ms / without }'
  done
  exit 0
fi

rounds=${1:-5} seconds=${2:-12}
cargo build --quiet --release -p warpmeter-simgpu -p simgpu-nvml -p simgpu-cuda -p simgpu-cupti -p warpmeter-workload \
  -p warpmeter-inject
cargo build --quiet --release -p warpmeter-inject-page --example show
printf '[[gpu]]\nmodel = "H100"\n' >"$work/node.toml"
"$release/simgpu" create --scenario "$work/node.toml" --state "$work/node" --libraries "$work/lib" >/dev/null
export SIMGPU_STATE=$work/node

value() { awk -v name="$1" '$1 == name { print $2 }' "$work/page"; }

# One run: nanoseconds of a launch, launches a second, the program's memory without what it shares with the simulator,
# and what its page says of the library.
run() {
  local how=$1 pid
  shift
  env "$@" "$release/warpmeter-workload" trainer --library "$work/lib/libcuda.so.1" --seconds "$seconds" \
    --kernels 500 --kernel-us 5 --blocking-sync --report "$work/report" &
  pid=$!
  sleep "$(awk -v seconds="$seconds" 'BEGIN { print seconds - 0.5 }')"
  memory=$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$pid/status")
  : >"$work/page"
  [ "$how" = without ] || "$release/examples/show" "$pid" >"$work/page"
  wait "$pid"
  sed -E 's/.*"start_ns":([0-9]+),"end_ns":([0-9]+).*"kernels":([0-9]+).*"launch_s":([0-9.]+).*/\1 \2 \3 \4/' "$work/report" |
    awk -v how="$how" -v memory="$memory" -v records="$(value records)" -v cpu="$(value cpu_ns)" \
      -v elapsed="$(value elapsed_ns)" -v dropped="$(value dropped)" '
      { printf "%s %.1f %.0f %d %.1f %.4f %d\n", how, $4 * 1e9 / $3, $3 * 1e9 / ($2 - $1), memory,
          records ? cpu / records : 0, elapsed ? cpu * 100 / elapsed : 0, dropped }' >>"$work/runs"
}

for ((round = 0; round < rounds; round++)); do
  inject=("CUDA_INJECTION64_PATH=$PWD/$library" "WARPMETER_INJECT_CUPTI=$work/lib/libcupti.so.12")
  case $library in /*) inject[0]=CUDA_INJECTION64_PATH=$library ;; esac
  run without
  run off "${inject[0]}" WARPMETER_INJECT_CUPTI=/nowhere/libcupti.so
  run 1/10 "${inject[@]}" WARPMETER_INJECT_SAMPLE=1/10
  run 1/1 "${inject[@]}" WARPMETER_INJECT_SAMPLE=1/1
done

echo "| library | ns a launch | launches a second | KiB of memory of its own | ns of its thread a record | its thread, % of a core | records dropped |"
echo "|---|---:|---:|---:|---:|---:|---:|"
for how in without off 1/10 1/1; do
  printf '| %s |' "$how"
  for column in 2 3 4 5 6 7; do printf ' %s |' "$(median "$how" "$column" "$work/runs")"; done
  echo
done
echo "size of the library: $(($(stat -c %s "$library") / 1024)) KiB"
