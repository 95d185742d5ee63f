#!/usr/bin/env bash
# What the injected library costs, as a table: medians, and the least and the most of all runs.
#
# usage: tests/inject/costs.sh [ROUNDS] [SECONDS]          on the simulated driver: 5 rounds of 12 seconds by default
#        tests/inject/costs.sh real ROUNDS COMMAND…        on a real GPU: how long COMMAND takes without and with it
#
# On the simulated driver a program launches kernels as fast as it can, 500 between two waits. Records cost there what
# the simulator's own CUPTI takes, not NVIDIA's; what the table has of this library is its own: the time of its thread
# by its own account, and memory. Only the second form says what a program loses. It fails if the library was not on in
# a process of COMMAND: what was not there costs nothing.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
release=$target/release
library=$(cd "$here" && realpath -m "${WARPMETER_INJECT_LIBRARY:-$release/libwarpmeter_inject.so}")
show=$(cd "$here" && realpath -m "${WARPMETER_INJECT_SHOW:-$release/examples/show}")

# The median, the least and the most of the numbers in a column of those lines that begin with a word.
spread() {
  awk -v word="$1" -v column="$2" '$1 == word { print $column }' "$3" | sort -g |
    awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)], value[1], value[NR] }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A process and all that descend from it.
family() {
  local child
  echo "$1"
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do family "$child"; done
}

# Notes what the library says of itself in a process and its descendants, for as long as it runs: state and records.
listen() {
  local pid
  while [ -d "/proc/$1" ]; do
    for pid in $(family "$1"); do
      { "$show" "$pid" 2>/dev/null || true; } |
        awk '$1 == "state" { state = $0 } $1 == "records" && state { print $2, state }' >>"$2"
    done
    sleep 0.3
  done
}

# Runs a command with some variables, and notes how long it takes and what the library said meanwhile.
timed() {
  local how=$1 variables=() begin pid watcher
  shift
  [ "$how" = without ] || variables=("CUDA_INJECTION64_PATH=$library" "WARPMETER_INJECT_SAMPLE=$how")
  : >"$work/said"
  begin=$(date +%s%N)
  env -C "$here" "${variables[@]}" "$@" >"$work/output" &
  pid=$!
  listen "$pid" "$work/said" &
  watcher=$!
  wait "$pid" || { echo "costs.sh: $* ended with an error ($how)" >&2; return 1; }
  echo "$how $((($(date +%s%N) - begin) / 1000000))" >>"$work/times"
  wait "$watcher"
}

# Whether the library was on in a run, and gave records if it was to give all.
was_on() {
  local how=$1 said
  said=$(sed 's/^[0-9]* state //' "$work/said" | sort -u | paste -sd ';' -)
  if ! grep -q 'state Sampling' "$work/said"; then
    echo "costs.sh: the library was not on in any process of the command ($how): ${said:-none has a page of it}." \
      "Nothing is known of what it costs. Is CUPTI there (WARPMETER_INJECT_CUPTI), does the command use CUDA, does it" \
      "run for a second, and may you see its open files?" >&2
    return 1
  fi
  if [ "$how" = 1/1 ] && ! grep -qE '^[1-9][0-9]* state Sampling' "$work/said"; then
    echo "costs.sh: the library was on and had no record of any kernel: nothing is known of what records cost" >&2
    return 1
  fi
}

if [ "${1:-}" = real ]; then
  rounds=$2
  shift 2
  for file in "$library" "$show"; do
    [ -f "$file" ] || {
      echo "costs.sh: no $file: cargo build --release -p warpmeter-inject, and" \
        "cargo build --release -p warpmeter-inject-page --example show" >&2
      exit 1
    }
  done
  for ((round = 0; round < rounds; round++)); do
    for how in without 1/1 1/10; do
      timed "$how" "$@"
      [ "$how" = without ] || was_on "$how"
    done
  done
  read -r without _ _ < <(spread without 2 "$work/times")
  echo "| library | ms, median (least to most) | of that without |"
  echo "|---|---:|---:|"
  for how in without 1/1 1/10; do
    read -r median least most < <(spread "$how" 2 "$work/times")
    awk -v how="$how" -v median="$median" -v least="$least" -v most="$most" -v without="$without" \
      'BEGIN { printf "| %s | %d (%d to %d) | %.4f |\n", how, median, least, most, median / without }'
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

# One run: launches a second, nanoseconds of a launch, the program's memory without what it shares with the simulator,
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
  [ "$how" = without ] || "$show" "$pid" >"$work/page"
  wait "$pid"
  sed -E 's/.*"start_ns":([0-9]+),"end_ns":([0-9]+).*"kernels":([0-9]+).*"launch_s":([0-9.]+).*/\1 \2 \3 \4/' "$work/report" |
    awk -v how="$how" -v memory="$memory" -v records="$(value records)" -v cpu="$(value cpu_ns)" \
      -v elapsed="$(value elapsed_ns)" -v dropped="$(value dropped)" '
      { printf "%s %.0f %.1f %d %.1f %.4f %d\n", how, $3 * 1e9 / ($2 - $1), $4 * 1e9 / $3, memory,
          records ? cpu / records : 0, elapsed ? cpu * 100 / elapsed : 0, dropped }' >>"$work/runs"
}

for ((round = 0; round < rounds; round++)); do
  inject=("CUDA_INJECTION64_PATH=$library" "WARPMETER_INJECT_CUPTI=$work/lib/libcupti.so.12")
  run without
  run off "${inject[0]}" WARPMETER_INJECT_CUPTI=/nowhere/libcupti.so
  run 1/10 "${inject[@]}" WARPMETER_INJECT_SAMPLE=1/10
  run 1/1 "${inject[@]}" WARPMETER_INJECT_SAMPLE=1/1
done

echo "Medians of $rounds runs of $seconds s, with the least and the most of them."
echo
echo "| library | launches a second | ns a launch | KiB of memory of its own | its thread: ns a record | its thread: % of a core | records dropped |"
echo "|---|---:|---:|---:|---:|---:|---:|"
for how in without off 1/10 1/1; do
  printf '| %s |' "$how"
  for column in 2 3 4 5 6 7; do
    read -r median least most < <(spread "$how" "$column" "$work/runs")
    printf ' %s (%s to %s) |' "$median" "$least" "$most"
  done
  echo
done
echo "size of the library: $(($(stat -c %s "$library") / 1024)) KiB"
